// Httpservice trains a model when it starts and answers questions about nodes
// over HTTP: a GNN inside a Go service, with no second process.
//
//	go run ./examples/httpservice -addr localhost:8080
//	curl 'localhost:8080/predict?ids=0,17,42'
//
// With -once it asks itself one question, prints the answer and ends. For a
// model that was trained before, take the settings from runtime.OpenModel, set
// cfg.Data.Path, and leave Train out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	once := flag.Bool("once", false, "ask one question, print the answer and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *addr, *once); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, addr string, once bool) (err error) {
	rt, err := runtime.Start(ctx, runtime.DefaultConfig()) // the built-in graph
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return err
		}
		if ev.Kind == runtime.EventDone {
			fmt.Fprintf(out, "trained: test accuracy %.3f\n", ev.TestAccuracy)
		}
	}

	if once {
		addr = "localhost:0" // any free port
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /predict", predict(rt))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(out, "serving on %s/predict?ids=0,17,42\n", url)
	if once {
		err = ask(ctx, out, url+"/predict?ids=0,17,42")
	} else {
		select {
		case <-ctx.Done():
		case err = <-served:
			return err
		}
	}
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(down)) // lets questions under way be answered
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// predict answers with the most probable class of each node of ?ids=. Any number
// of requests may be under way: a Runtime may be used from any goroutine.
func predict(rt *runtime.Runtime) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var ids []uint32
		for text := range strings.SplitSeq(req.FormValue("ids"), ",") {
			id, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				http.Error(w, fmt.Sprintf("ids: %q is no node", text), http.StatusBadRequest)
				return
			}
			ids = append(ids, uint32(id))
		}
		answer, err := rt.Predict(req.Context(), ids)
		if err != nil {
			code := http.StatusInternalServerError
			if errors.Is(err, runtime.ErrNode) {
				code = http.StatusBadRequest
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			log.Printf("answering %s: %v", req.RemoteAddr, err) // the asker is gone
		}
	}
}

// ask prints the answer to one question.
func ask(ctx context.Context, out io.Writer, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, res.Status, answer)
	}
	_, err = out.Write(answer)
	return err
}
