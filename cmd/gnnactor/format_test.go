package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestFormatCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -12: "-12", -1234: "-1,234", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := formatCount(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestCountOf(t *testing.T) {
	for want, got := range map[string]string{"1 trial": countOf(1, "trial"), "0 trials": countOf(0, "trial"), "1,000 nodes": countOf(1000, "node"), "2 classes": countOf(2, "class"), "1 class": countOf(1, "class")} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSignificant(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want string
	}{{0, "0"}, {1, "1.00"}, {12.345, "12.3"}, {123.4, "123"}, {1234, "1,230"}, {98765432, "98,800,000"}, {0.0012345, "0.00123"}, {-5.678, "-5.68"}, {999.6, "1,000"}, {0.9999, "1.00"}, {1e-9, "0.00000000100"}, {1e30, "1.00e+30"}} {
		if got := significant(c.x); got != c.want {
			t.Errorf("%v: got %s, want %s", c.x, got, c.want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1 << 20: "1.00 MiB", 123 << 20: "123 MiB", 1<<20 - 1: "1.00 MiB", 5 << 30: "5.00 GiB", 3 << 40: "3.00 TiB", 5 << 50: "5,120 TiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", 17: "17 ns", 1500: "1.50 µs", 45 * time.Millisecond: "45.0 ms", 1234 * time.Millisecond: "1.23 s", 61 * time.Second: "61.0 s", 3 * time.Hour: "3h0m0s"} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestFormatWhatIsNotThere(t *testing.T) {
	if got := formatPercent(math.NaN()) + formatLoss(math.NaN()); got != "––" {
		t.Errorf("got %q", got)
	}
	if got := formatPercent(0.8153); got != "81.5 %" {
		t.Errorf("got %q", got)
	}
	text, err := json.Marshal([]finite{0.25, finite(math.NaN()), finite(math.Inf(1))})
	if err != nil || string(text) != "[0.25,null,null]" {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestTable(t *testing.T) {
	var tab table
	tab.row("", "nodes", "accuracy")
	tab.row("train", "1,400", "–")
	tab.gap()
	tab.row("ü", "2")
	var b strings.Builder
	if err := tab.write(&b); err != nil {
		t.Fatal(err)
	}
	want := "       nodes  accuracy\ntrain  1,400         –\n\nü  2\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPeakRSS(t *testing.T) {
	if got := peakRSS(); got < 1<<20 || got > 1<<40 {
		t.Errorf("got %d bytes", got)
	}
}
