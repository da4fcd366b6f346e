//go:build race

package upstream

const raced = true
