package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/runtime"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestOnce(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "", true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var answer []runtime.Prediction
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &answer); err != nil || len(answer) != 3 {
		t.Errorf("got %s, %v", out.String(), err)
	}
}

func TestBadQuestions(t *testing.T) {
	rt, err := runtime.Start(t.Context(), runtime.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Stop()
	for query, want := range map[string]int{"ids=1,2": http.StatusOK, "ids=": http.StatusBadRequest, "": http.StatusBadRequest, "ids=x": http.StatusBadRequest, "ids=1,4000": http.StatusBadRequest, "ids=-1": http.StatusBadRequest} {
		w := httptest.NewRecorder()
		predict(rt)(w, httptest.NewRequest(http.MethodGet, "/predict?"+query, nil))
		if w.Code != want {
			t.Errorf("%q: status %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
}
