//go:build !amd64

package sampling

func setSIMD(bool) {}

func setSIMD512(bool) {}
