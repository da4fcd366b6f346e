package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// Recipe says how columns of tables became features and classes, so that other data can be made
// the same: a store keeps it (graph.Dataset.Recipe), in JSON.
type Recipe struct {
	Version int             `json:"version"`
	Nodes   []FeatureColumn `json:"nodes,omitempty"`
	Edges   []FeatureColumn `json:"edges,omitempty"`
	Label   *LabelColumn    `json:"label,omitempty"`
}

// recipeVersion is the newest that this program knows: 2 has labels that are numbers.
const recipeVersion = 2

// FeatureColumn says how a column became features.
type FeatureColumn struct {
	Column string `json:"column"`
	Kind   string `json:"kind"` // "number", "category" or "text"
	// Values are the categories, one column each, in order; another one after them is 1 for a value that
	// is none of them, or missing.
	Values []string `json:"values,omitempty"`
	// A number x becomes (x - Center)·Factor. One that is missing becomes (Fill - Center)·Factor, where Fill
	// is the mean over the training nodes, or over all nodes where there are none; if there
	// were any, another column is 1 for them.
	Center  float64 `json:"center,omitempty"`
	Factor  float64 `json:"factor,omitempty"` // 0: 1
	Fill    float64 `json:"fill,omitempty"`
	Missing bool    `json:"missing,omitempty"`
	// Width is how many columns words are counted in; a word's is a hash of it in small letters.
	Width int `json:"width,omitempty"`
}

// LabelColumn says which classes a column's values are.
type LabelColumn struct {
	Column  string   `json:"column"`
	Classes []string `json:"classes,omitempty"` // names, by number; nil: the values are the numbers
	Number  bool     `json:"number,omitempty"`  // the values are numbers to predict
}

// ParseRecipe reads a recipe that a store or a model keeps. Errors wrap graph.ErrFormat.
func ParseRecipe(b []byte) (*Recipe, error) {
	r := new(Recipe)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, dataerr.Bad("the recipe of features is damaged: %w", plainError(err))
	}
	if r.Version < 1 || r.Version > recipeVersion {
		return nil, dataerr.Bad("the recipe of features has version %d; this program reads 1 to %d", r.Version, recipeVersion)
	}
	for _, f := range slices.Concat(r.Nodes, r.Edges) {
		if f.columns() < 1 || f.columns() > arrays.MaxColumns || !slices.Contains([]string{kindNumber, kindCategory, kindText}, f.Kind) {
			return nil, dataerr.Bad("the recipe's column %q is of kind %q with %d columns", clip(f.Column), clip(f.Kind), f.columns())
		}
	}
	return r, nil
}

// ClassName returns what the data calls a class.
func (r *Recipe) ClassName(class int) string {
	if r == nil || r.Label == nil || class < 0 || class >= len(r.Label.Classes) {
		return fmt.Sprint(class)
	}
	return r.Label.Classes[class]
}

func (r *Recipe) encode() []byte {
	if r.Version = 1; r.Label != nil && r.Label.Number {
		r.Version = 2
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and finite numbers always encode
	}
	return b
}

// columns returns how many columns of features the column becomes.
func (f *FeatureColumn) columns() int {
	switch {
	case f.Kind == kindCategory:
		return len(f.Values) + 1
	case f.Kind == kindText:
		return f.Width
	case f.Missing:
		return 2
	}
	return 1
}

func width(columns []FeatureColumn) (n int) {
	for i := range columns {
		n += columns[i].columns()
	}
	return n
}

// maxCategories is how many values a column has at most to be categories without being called so,
// and textColumns how many columns words are counted in.
const (
	maxCategories = 256
	textColumns   = 256
)

// fit finds out what a column of features is.
type fit struct {
	FeatureColumn
	asked    bool // by name; else it is taken if it has numbers alone
	number   bool // all values are, so far
	comma    bool // all would be with a decimal comma
	commas   bool // some value has a comma
	numbers  int  // values that are, counted while they are no fewer than the others
	others   int
	other    string // the first that is not
	seen     bool   // a value that is not missing
	distinct map[string]bool
	sum      float64
	sumSq    float64
	count    int64
}

func newFit(name, kind string, asked bool) *fit {
	f := &fit{FeatureColumn: FeatureColumn{Column: name, Kind: kind}, asked: asked, number: true, comma: true}
	if asked {
		f.distinct = map[string]bool{}
	}
	return f
}

// missingValue tells whether a field stands for none: empty, NA, N/A, NaN, null, None, ? or \N.
func missingValue(b []byte) bool {
	switch len(b) {
	case 0:
		return true
	case 1:
		return b[0] == '?'
	case 2, 3, 4:
		switch string(bytes.ToLower(b)) {
		case "na", "n/a", "nan", "null", "none", `\n`:
			return true
		}
	}
	return false
}

// parseValue reads a number, or a truth.
func (o *Options) parseValue(b []byte) (float32, error) {
	switch len(b) {
	case 4, 5:
		if bytes.EqualFold(b, []byte("true")) {
			return 1, nil
		} else if bytes.EqualFold(b, []byte("false")) {
			return 0, nil
		}
	}
	comma := bytes.IndexByte(b, ',')
	if o.DecimalComma && comma >= 0 {
		b = bytes.Replace(b, []byte(","), []byte("."), 1)
	}
	x, err := parseFloat(b)
	if err != nil && !o.DecimalComma && comma > 0 && numeric(string(b)) {
		err = fmt.Errorf("%q has a decimal comma; read them as such (the option DecimalComma, --decimal-comma)", clip(b))
	}
	return x, err
}

// thousands reports whether b is a number with commas between thousands: 1,000.5.
func thousands(b []byte) bool {
	whole, _, _ := bytes.Cut(bytes.TrimLeft(b, "+-"), []byte("."))
	groups := bytes.Split(whole, []byte(","))
	for i, g := range groups {
		if i > 0 && len(g) != 3 || i == 0 && (len(g) == 0 || len(g) > 3) {
			return false
		}
	}
	return len(groups) > 1 && numeric(string(bytes.ReplaceAll(b, []byte(","), nil)))
}

// fewOthers is how many more values than numbers are none before no more are read: most of those after the first may be numbers.
const fewOthers = 64

// add looks at a value.
func (f *fit) add(o *Options, b []byte) {
	if missingValue(b) {
		f.Missing = true
		return
	}
	f.seen = true
	if f.numbers+fewOthers >= f.others {
		if _, err := o.parseValue(b); err == nil {
			f.numbers++
		} else if f.others++; f.number {
			f.number, f.other = false, clip(b)
		}
	}
	f.commas = f.commas || bytes.IndexByte(b, ',') >= 0
	if !f.number && f.comma {
		f.comma = numeric(string(b)) || thousands(b)
	}
	if f.distinct != nil && !f.distinct[string(b)] {
		if len(f.distinct) > maxCategories && f.Kind != kindCategory || len(f.distinct) == arrays.MaxColumns-1 {
			f.distinct = nil
			return
		}
		f.distinct[string(b)] = true
	}
}

// lists reports whether the values look like lists.
func (f *fit) lists() bool {
	return f.other != "" && strings.Contains("[({", f.other[:1]) && f.numbers == 0
}

// unused says of a column that is not used why, and how it would be.
func (f *fit) unused() string {
	switch {
	case f.asked || f.number:
		return ""
	case f.lists():
		return "not used: lists; give each of their values a column of its own"
	case f.numbers <= f.others:
		return fmt.Sprintf("not used: words (--feature %s:category or %[1]s:text takes them)", clip(f.Column))
	}
	return fmt.Sprintf("not used: most values are numbers, and %q is not (--feature %s:number says where)", f.other, clip(f.Column))
}

// settle decides the kind; use is false when the column is not used.
func (f *fit) settle(path string) (use bool, err error) {
	if (f.Kind == "" || f.Kind == kindNumber) && f.seen && f.comma && f.commas && !f.number {
		return false, dataerr.Bad("%s: the column %q has numbers with commas; if those are decimal commas, read them as such (the option DecimalComma, --decimal-comma), if they stand between thousands, take them out; if they are categories or words, say so (%[2]s:category, %[2]s:text)", path, clip(f.Column))
	}
	if !f.asked && (!f.number || !f.seen) {
		return false, nil
	}
	if f.Kind == "" && f.lists() {
		return false, dataerr.Bad("%s: the column %q has lists, like %q; give each of their values a column of its own, or say what they are (%[2]s:category, %[2]s:text)", path, clip(f.Column), f.other)
	}
	if f.Kind == "" {
		switch {
		case f.number:
			f.Kind = kindNumber
		case f.distinct != nil && len(f.distinct) <= maxCategories:
			f.Kind = kindCategory
		default:
			f.Kind = kindText
		}
	}
	switch f.Kind {
	case kindCategory:
		if f.distinct == nil {
			return false, dataerr.Bad("%s: the column %q has more than %d values, which is too many for categories; take it as text (--feature %s:text)", path, clip(f.Column), arrays.MaxColumns-2, clip(f.Column))
		}
		for v := range f.distinct {
			if !utf8.ValidString(v) {
				return false, dataerr.Bad("%s: the column %q has %q, which is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)", path, clip(f.Column), clip(v))
			}
			f.Values = append(f.Values, v)
		}
		slices.Sort(f.Values)
		f.Missing = false
	case kindText:
		f.Width, f.Missing = textColumns, false
	}
	return true, nil
}

// encoder turns rows into features.
type encoder struct {
	o       *Options
	columns []FeatureColumn
	places  []map[string]int // of categories
	x       []float32
}

func newEncoder(o *Options, columns []FeatureColumn) *encoder {
	e := &encoder{o: o, columns: columns, places: make([]map[string]int, len(columns)), x: make([]float32, width(columns))}
	for i, c := range columns {
		if c.Kind == kindCategory {
			e.places[i] = map[string]int{}
			for j, v := range c.Values {
				e.places[i][v] = j
			}
		}
	}
	return e
}

// row encodes the fields that field returns for each column. The result is valid until the next.
func (e *encoder) row(field func(k int) []byte) ([]float32, error) {
	at := 0
	for i := range e.columns {
		c := &e.columns[i]
		b := field(i)
		x := e.x[at : at+c.columns()]
		at += len(x)
		clear(x)
		switch c.Kind {
		case kindCategory:
			j, ok := e.places[i][string(b)]
			if !ok || missingValue(b) {
				j = len(c.Values)
			}
			x[j] = 1
		case kindText:
			if !missingValue(b) {
				countWords(b, x)
			}
		default:
			v := float32(c.Fill)
			if !missingValue(b) {
				var err error
				if v, err = e.o.parseValue(b); err != nil {
					return nil, fmt.Errorf("column %q: %w", clip(c.Column), err)
				}
			} else if c.Missing {
				x[1] = 1
			}
			if c.Factor != 0 {
				v = float32((float64(v) - c.Center) * c.Factor)
			}
			x[0] = v
		}
	}
	return e.x, nil
}

// countWords adds 1 for each word to a column of x that its hash chooses (FNV-1a of its letters and
// digits, in small letters).
func countWords(b []byte, x []float32) {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	h, within := uint64(offset), false
	var buf [utf8.UTFMax]byte
	for _, c := range string(b) {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			if within {
				x[h%uint64(len(x))]++
				h, within = offset, false
			}
			continue
		}
		within = true
		for _, u := range buf[:utf8.EncodeRune(buf[:], unicode.ToLower(c))] {
			h = (h ^ uint64(u)) * prime
		}
	}
	if within {
		x[h%uint64(len(x))]++
	}
}

// classes numbers the values of a column of labels.
type classes struct {
	column string
	known  []string // of a recipe, in order; nil: they are found
	values map[string]int32
	whole  bool // all values are whole numbers
	rows   []int32
}

// errUnknownClass is what becomes of a label that a recipe does not have.
var errUnknownClass = errors.New("a class that the recipe does not have (--label none takes no labels)")

func (c *classes) add(b []byte) error {
	if missingValue(b) {
		c.rows = append(c.rows, -1)
		return nil
	}
	v, ok := c.values[string(b)]
	if !ok {
		if c.known != nil {
			return fmt.Errorf("%w: %q; the classes are %s", errUnknownClass, clip(b), listed(c.known))
		}
		if len(c.values) >= fewClasses {
			return fmt.Errorf("more than %d classes; is this the column of labels? (--label COL, or --label none)", fewClasses)
		}
		if !utf8.Valid(b) {
			return fmt.Errorf("the label %q is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)", clip(b))
		}
		v = int32(len(c.values))
		c.values[string(b)] = v
		_, whole := wholeNumber(string(b))
		c.whole = c.whole && whole
	}
	c.rows = append(c.rows, v)
	return nil
}

// fractions reports whether all values are numbers, and not all are whole.
func (c *classes) fractions(parse func([]byte) (float32, error)) bool {
	for v := range c.values {
		if _, err := parse([]byte(v)); err != nil {
			return false
		}
	}
	return !c.whole
}

// wholeNumber reads 3 and 3.0, as pandas writes a column in which one is missing.
func wholeNumber(s string) (int64, bool) { return parseNumber([]byte(strings.TrimSuffix(s, ".0"))) }

// settle numbers the classes: numbers from 0 without gaps are what they are, of which -1 is none; others
// get numbers as they rise, and keep their names.
func (c *classes) settle(path string) (names []string, err error) {
	if c.known != nil {
		return c.known, nil
	}
	list := make([]string, 0, len(c.values))
	for v := range c.values {
		list = append(list, v)
	}
	number := make([]int32, len(list)) // of each value, as they came
	if c.whole {
		slices.SortFunc(list, func(a, b string) int {
			x, _ := wholeNumber(a)
			y, _ := wholeNumber(b)
			if x != y {
				return int(math.Copysign(1, float64(x)-float64(y)))
			}
			return strings.Compare(a, b)
		})
		n, last, gaps := int32(-1), int64(math.MinInt64), false
		for i, v := range list {
			x, _ := wholeNumber(v)
			if x == -1 {
				if len(list) == 2 {
					return nil, dataerr.Bad("%s: the column %q has -1 and %s alone, and -1 is a node without label; if it is a class, call the two otherwise, say no and yes", path, clip(c.column), clip(list[1-i]))
				}
				number[c.values[v]] = -1
				continue
			}
			if x != last {
				n++
				names = append(names, fmt.Sprint(x))
			}
			gaps = gaps || x != int64(n)
			last, number[c.values[v]] = x, n
		}
		if !gaps {
			names = nil
		}
	} else {
		slices.Sort(list)
		for i, v := range list {
			number[c.values[v]] = int32(i)
		}
		names = list
	}
	for i, v := range c.rows {
		if v >= 0 {
			c.rows[i] = number[v]
		}
	}
	return names, nil
}

func listed(names []string) string {
	s := fmt.Sprintf("%q", names[:min(len(names), 8)])
	if len(names) > 8 {
		s += fmt.Sprintf(" and %d more", len(names)-8)
	}
	return s
}
