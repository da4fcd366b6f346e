package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
)

// outputFormat is what --output chooses between.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

// Set implements pflag.Value.
func (o *outputFormat) Set(s string) error {
	switch f := outputFormat(strings.ToLower(s)); f {
	case outputText, outputJSON:
		*o = f
		return nil
	}
	return fmt.Errorf("must be text or json")
}

// String implements pflag.Value.
func (o *outputFormat) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *outputFormat) Type() string { return "name" }

// addOutputFlag gives cmd --output.
func (a *app) addOutputFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.output, "output", "`FORMAT` of the result: text, or json for one JSON object on the last line")
}

// printJSON writes v as one line to the standard output.
func (a *app) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", line)
	return err
}

// logf writes one line to the standard error.
func (a *app) logf(format string, args ...any) {
	fmt.Fprintf(a.stderr, "gnnactor: "+format+"\n", args...)
}

// finite is a number in JSON, null when it is not finite: a split that does not
// exist has no accuracy.
type finite float64

// MarshalJSON implements json.Marshaler.
func (x finite) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}
