package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// countOf writes how many there are of what noun names: 1 trial, 1,000 trials.
func countOf[T int | int64 | uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return formatCount(n) + " " + noun + "s"
}

// formatCount writes n with commas between thousands.
func formatCount[T int | int64 | uint64](n T) string {
	digits := fmt.Sprint(n)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	b.WriteString(sign)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// significant writes x with three significant digits, and no exponent below
// 1e18.
func significant(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64)
	if err != nil || math.Abs(rounded) >= 1e18 {
		return strconv.FormatFloat(x, 'e', 2, 64) // out of range
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(rounded))))
	if places <= 0 {
		return formatCount(int64(rounded))
	}
	return strconv.FormatFloat(rounded, 'f', places, 64)
}

// formatBytes writes a size in the largest binary unit that it fills.
func formatBytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	x, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		x /= 1024
		if x < 999.5 {
			break
		}
	}
	return significant(x) + " " + unit
}

// formatDuration writes a time with three significant digits.
func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0 s"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return significant(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return significant(float64(d)/float64(time.Millisecond)) + " ms"
	case d < 10*time.Minute:
		return significant(d.Seconds()) + " s"
	}
	return d.Round(time.Second).String()
}

// formatPercent writes a share as a percentage; "–" when there is none.
func formatPercent(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
}

// formatNumber writes a number with four digits or, if it is large, its whole part; "–" when there is none.
func formatNumber(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.Abs(x) >= 1e4 && math.Abs(x) < 1e15:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// formatLoss writes a loss with four places; "–" when there is none.
func formatLoss(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(x, 'f', 4, 64)
}
