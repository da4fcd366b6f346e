package layers

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that trains or answers by itself links nothing of a cluster.
func TestRuntimeLinksNoCluster(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./runtime")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, bad := range []string{"google.golang.org/grpc", "go.etcd.io", module + "/cluster"} {
			if strings.HasPrefix(pkg, bad) {
				t.Errorf("runtime depends on %s", pkg)
			}
		}
		if host, _, _ := strings.Cut(pkg, "/"); strings.Contains(host, ".") && !strings.HasPrefix(pkg, module) {
			others++
		}
	}
	if others == 0 || others > 155 {
		t.Errorf("runtime depends on %d packages of others; at most 155", others)
	}
}
