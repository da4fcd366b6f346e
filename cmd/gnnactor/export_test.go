package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// withoutMetadata writes what another program would: the tensors of file alone, with parts of their names replaced.
func withoutMetadata(t *testing.T, file string, oldnew ...string) string {
	t.Helper()
	tensors, _, err := compute.OpenSafetensors(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tensors {
		tensors[i].Name = strings.NewReplacer(oldnew...).Replace(tensors[i].Name)
	}
	var b bytes.Buffer
	if err := compute.WriteSafetensors(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, "theirs.safetensors", b.String())
}

// A model that is exported under other names, and one that another program saved under its own, predict as it did: the latter
// with nothing said but what tensors do not say.
func TestExportedModelsPredictTheSame(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	mustInvoke(t, "generate", "sbm", in("store"), "--nodes", "300", "--degree", "6", "--classes", "3")
	mustInvoke(t, "train", "--data", in("store"), "--model", "gat", "--heads", "4", "--output-heads", "2", "--hidden", "16", "--activation", "elu", "--fanouts", "4,4", "--epochs", "2", "--save", in("m.safetensors"))
	predicted := func(args ...string) string {
		t.Helper()
		out, _ := mustInvoke(t, append([]string{"predict", "--data", in("store"), "--ids", "0-49"}, args...)...)
		return out
	}
	want := predicted("--params", in("m.safetensors"))
	mustInvoke(t, "export", in("m.safetensors"), in("m.onnx"))
	computation, err := os.ReadFile(in("m.onnx"))
	if err != nil || !bytes.Contains(computation, []byte("convs.1.att_src")) || !bytes.Contains(computation, []byte("Elu")) {
		t.Errorf("the ONNX file has no parameters, or no activation: %v", err)
	}
	for _, style := range []string{"pyg", "conv", "dgl"} {
		mustInvoke(t, "export", in("m.safetensors"), in(style+".safetensors"), "--names", style)
		if got := predicted("--params", in(style+".safetensors")); got != want {
			t.Errorf("exported with names of %s it predicts otherwise:\n%s", style, got)
		}
		bare := withoutMetadata(t, in(style+".safetensors"), "conv", "module.net.conv", "layers", "module.net.layers")
		if got := predicted("--params", bare, "--activation", "elu"); got != want {
			t.Errorf("without a description, with names of %s, it predicts otherwise:\n%s", style, got)
		}
		again := in("again-" + style + ".safetensors") // says as little as the file does, or what was said
		mustInvoke(t, "export", bare, again)
		if got := predicted("--params", again, "--activation", "elu"); got != want {
			t.Errorf("exported without a description, with names of %s, it predicts otherwise:\n%s", style, got)
		}
		mustInvoke(t, "export", bare, again, "--activation", "elu")
		if got := predicted("--params", again); got != want {
			t.Errorf("exported with its activation, with names of %s, it predicts otherwise:\n%s", style, got)
		}
		mustInvoke(t, "export", bare, in(style+".onnx"), "--activation", "elu")
		if computed, err := os.ReadFile(in(style + ".onnx")); err != nil || !bytes.Equal(computed, computation) {
			t.Errorf("with names of %s its ONNX is another, %v", style, err)
		}
		if out, _ := mustInvoke(t, "inspect", bare); !strings.Contains(out, "by its tensors gat, 2 layers, 16 wide") {
			t.Errorf("inspect shows\n%s", out)
		}
	}

	names := writeTemp(t, "names.txt", "convs.0.lin.weight = begin.w transposed\nconvs.0.bias = begin.b\n"+
		"convs.0.att_src = begin.s\nconvs.0.att_dst = begin.d\nconvs.1.lin.weight = end.w\nconvs.1.bias = end.b\nconvs.1.att_src = end.s\nconvs.1.att_dst = end.d\n")
	mustInvoke(t, "export", in("m.safetensors"), in("mapped.safetensors"), "--map", names)
	mapped := withoutMetadata(t, in("mapped.safetensors"))
	if got := predicted("--params", mapped, "--activation", "elu", "--map", names); got != want {
		t.Errorf("by a map it predicts otherwise:\n%s", got)
	}
	mustInvoke(t, "train", "--data", in("store"), "--params", mapped, "--map", names, "--activation", "elu", "--epochs", "0", "--save", in("ours.safetensors"))
	mustInvoke(t, "export", in("ours.safetensors"), in("ours.onnx"))
	if computed, err := os.ReadFile(in("ours.onnx")); err != nil || !bytes.Equal(computed, computation) {
		t.Errorf("of a model that was read by a map and saved the ONNX is another, %v", err)
	}
	if code, _, stderr := invoke(t, "predict", "--data", in("store"), "--params", mapped, "--model", "gat", "--layers", "2", "--hidden", "16", "--heads", "4", "--output-heads", "2"); code == exitDone ||
		!strings.Contains(stderr, `"begin.w" of shape`) || !strings.Contains(stderr, "map") {
		t.Errorf("without the map: exit %d, %s", code, stderr)
	}
	if code, _, stderr := invoke(t, "predict", "--data", in("store"), "--params", mapped, "--map", writeTemp(t, "bad.txt", "convs.0.bias\n")); code == exitDone || !strings.Contains(stderr, "line 1") {
		t.Errorf("a map that is none: exit %d, %s", code, stderr)
	}
	if code, _, stderr := invoke(t, "export", in("m.safetensors"), in("n.onnx"), "--activation", "relu"); code == exitDone || !strings.Contains(stderr, "says itself") {
		t.Errorf("another activation: exit %d, %s", code, stderr)
	}
	if code, _, stderr := invoke(t, "export", in("m.safetensors"), in("n.onnx"), "--names", "dgl"); code != exitUsage || !strings.Contains(stderr, "leave them out") {
		t.Errorf("names of an ONNX file: exit %d, %s", code, stderr)
	}
	if code, _, stderr := invoke(t, "export", in("m.safetensors"), in("m.pt")); code != exitUsage || !strings.Contains(stderr, ".safetensors") {
		t.Errorf("another ending: exit %d, %s", code, stderr)
	}
	if _, err := os.Stat(in("m.pt")); err == nil {
		t.Error("it is there")
	}
}
