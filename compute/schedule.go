package compute

import "math"

// Schedule gives the learning rate of each epoch, from 0.
type Schedule interface {
	Rate(base float64, epoch int) float64
}

// StepDecay multiplies the rate by Factor every Every epochs.
type StepDecay struct {
	Every  int
	Factor float64
}

// Rate implements Schedule.
func (s StepDecay) Rate(base float64, epoch int) float64 {
	return base * math.Pow(s.Factor, float64(epoch/max(s.Every, 1)))
}

// Cosine lowers the rate from its base to Min over Epochs epochs along half a
// cosine, after Warmup epochs in which it rises linearly to its base.
type Cosine struct {
	Epochs, Warmup int
	Min            float64
}

// Rate implements Schedule.
func (c Cosine) Rate(base float64, epoch int) float64 {
	if epoch < c.Warmup {
		return base * float64(epoch+1) / float64(c.Warmup+1)
	}
	t := float64(min(epoch, c.Epochs)-c.Warmup) / float64(max(c.Epochs-c.Warmup, 1))
	return c.Min + (base-c.Min)*(1+math.Cos(math.Pi*t))/2
}

// Plateau multiplies the rate by Factor when a figure has not improved for more
// than Patience epochs, as PyTorch's ReduceLROnPlateau does without threshold.
// Its exported fields are all of its state: a checkpoint keeps them.
type Plateau struct {
	Factor   float64
	Patience int
	Min      float64 // of the rate
	Best     Best
	Scale    float64 // what the base rate is multiplied by; 0: nothing was reported yet
}

// Report tells p an epoch's figure, larger being better, and returns what the
// base rate is to be multiplied by from now on.
func (p *Plateau) Report(figure, base float64) float64 {
	if p.Scale == 0 {
		p.Scale = 1
	}
	p.Best.Report(figure)
	if p.Best.Since > p.Patience {
		p.Best.Since = 0
		p.Scale = max(p.Scale*p.Factor, p.Min/base)
	}
	return p.Scale
}

// Best follows a figure, larger being better, for early stopping. The zero value
// is ready for use.
type Best struct {
	Figure float64 // the best one; meaningless before the first report
	Epoch  int     // of the best one, from 0
	Since  int     // reports since
	Count  int     // reports
}

// Report tells b an epoch's figure and returns whether it is the best so far. A
// NaN never is.
func (b *Best) Report(figure float64) bool {
	better := figure > b.Figure || b.Count == 0 && figure == figure
	if better {
		b.Figure, b.Epoch, b.Since = figure, b.Count, 0
	} else {
		b.Since++
	}
	b.Count++
	return better
}

// Stop reports whether there was no improvement in the last patience reports;
// patience 0 never stops.
func (b *Best) Stop(patience int) bool { return patience > 0 && b.Since >= patience }
