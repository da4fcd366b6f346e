package compute

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/rng"
)

// Init says how a parameter starts.
type Init uint8

// The initialisations, as PyG has them.
const (
	Zeros   Init = iota
	Ones         // 1
	Glorot       // uniform in ±√(6/(rows+cols)), rows and cols the last two dimensions
	Kaiming      // uniform in ±1/√fan, what torch.nn.Linear and PyG's Linear start from
)

// Param declares one parameter tensor.
type Param struct {
	Name  string // PyG's name, "convs.0.lin.weight"
	Shape []int
	Init  Init
	Fan   int  // Kaiming: the number of inputs
	Fixed bool // it is stored with the others but not learnt: its gradient is 0

	// Statistic marks the running statistics of a batch norm (BatchNormParams):
	// they are Fixed, and a gradient carries what Model.Observe needs in their
	// place. One without dimensions is an integer in files.
	Statistic bool
}

// Tensor is a parameter's place in the flat vector.
type Tensor struct {
	Param
	Offset int // of the first element
	Len    int // number of elements, the product of Shape
}

// Layout is the order and shape of a model's parameters in one flat vector:
// sorted by name, without gaps. Gradients and optimiser moments share it.
type Layout struct {
	tensors []Tensor
	byName  map[string]int
	size    int
}

// NewLayout lays out params. Names must be unique and dimensions positive.
func NewLayout(params []Param) (*Layout, error) {
	l := &Layout{byName: make(map[string]int, len(params))}
	sorted := slices.Clone(params)
	slices.SortFunc(sorted, func(a, b Param) int { return strings.Compare(a.Name, b.Name) })
	for i, p := range sorted {
		if _, twice := l.byName[p.Name]; twice {
			return nil, fmt.Errorf("compute: parameter %q is declared twice", p.Name)
		}
		n := 1
		for _, d := range p.Shape {
			if d <= 0 {
				return nil, fmt.Errorf("compute: parameter %q has shape %v; every dimension must be positive", p.Name, p.Shape)
			}
			n *= d
		}
		l.byName[p.Name] = i
		l.tensors = append(l.tensors, Tensor{Param: p, Offset: l.size, Len: n})
		l.size += n
	}
	return l, nil
}

// Len returns the length of the flat vector.
func (l *Layout) Len() int { return l.size }

// Tensors returns the parameters in the order of the flat vector. The caller
// must not change the result.
func (l *Layout) Tensors() []Tensor { return l.tensors }

// Lookup returns the parameter called name.
func (l *Layout) Lookup(name string) (Tensor, bool) {
	i, ok := l.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return l.tensors[i], true
}

// NumLearnt returns the number of elements that are not Fixed.
func (l *Layout) NumLearnt() int {
	n := l.size
	for _, t := range l.tensors {
		if t.Fixed {
			n -= t.Len
		}
	}
	return n
}

// SHA256 returns, in hex, the hash of the name-sorted little-endian float32
// data, which is the hash of the flat vector.
func (l *Layout) SHA256(params []float32) string {
	if len(params) != l.size {
		panic("compute: Layout.SHA256: length of params is not the layout's")
	}
	h := sha256.New()
	var buf [4096]byte
	for len(params) > 0 {
		n := min(len(params), len(buf)/4)
		for i, v := range params[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
		}
		h.Write(buf[:4*n])
		params = params[n:]
	}
	return hex.EncodeToString(h.Sum(nil))
}

// initDomain separates the draws of initial values from all other draws.
const initDomain = 0x696e6974 // "init"

// Init returns freshly initialised parameters. A value depends on (seed, name
// of its tensor, index) alone, so a model's other tensors do not change it.
func (l *Layout) Init(seed uint64) []float32 {
	params := make([]float32, l.size)
	for _, t := range l.tensors {
		dst := params[t.Offset : t.Offset+t.Len]
		bound := 0.0
		switch t.Init {
		case Zeros:
			continue
		case Ones:
			for i := range dst {
				dst[i] = 1
			}
			continue
		case Glorot:
			k := len(t.Shape)
			bound = math.Sqrt(6 / float64(t.Shape[k-2]+t.Shape[k-1]))
		case Kaiming:
			bound = 1 / math.Sqrt(float64(t.Fan))
		}
		key := rng.New(seed, initDomain)
		for _, c := range []byte(t.Name) {
			key = key.With(uint64(c))
		}
		for i := range dst {
			dst[i] = float32((2*key.Float64(uint64(i)) - 1) * bound)
		}
	}
	return params
}
