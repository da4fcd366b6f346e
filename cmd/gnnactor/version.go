package main

import (
	"fmt"
	stdruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// versionInfo is what --output json prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the tree held changes that are in no commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and what this machine's kernels are",
		Args:  a.args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v, err := version()
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.printJSON(v)
			}
			revision := ""
			if v.Revision != "" {
				revision = " (" + v.Revision[:min(12, len(v.Revision))]
				if v.Modified {
					revision += ", modified"
				}
				revision += ")"
			}
			_, err = fmt.Fprintf(a.stdout, "gnnactor %s%s, %s, %s, %s kernels\n", v.Version, revision, v.Go, v.Platform, v.Kernels)
			return err
		},
	}
	a.addOutputFlag(cmd)
	return cmd
}

func version() (versionInfo, error) {
	v := versionInfo{Version: buildVersion(), Go: stdruntime.Version(), Platform: stdruntime.GOOS + "/" + stdruntime.GOARCH}
	set, err := cpu.Detect()
	if err != nil {
		return v, &usageError{err} // GNNACTOR_SIMD asks for what is not there
	}
	v.Kernels = set.String()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, nil
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v, nil
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
