package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/transport"
)

func newCluster(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make a cluster of several machines, look at it, and change it",
		Long: `Make a cluster of several machines, look at it, and change it.

Off loopback all connections are under mutual TLS: 'cluster certs' makes what
each node needs. 'cluster start' runs the store that holds the membership;
'gnnactor train --cluster HOST:PORT' begins a run on a machine that has the data,
and 'cluster join HOST:PORT' takes part in it on as many others.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.command = cmd.CommandPath()
			if len(args) > 0 {
				return usagef("there is no cluster %s: only certs, start, join, status and drain", args[0])
			}
			return cmd.Help()
		},
	}
	for _, c := range []*cobra.Command{newClusterCerts(a), newClusterStart(a), newClusterJoin(a), newClusterStatus(a), newClusterDrain(a)} {
		c.Flags().SortFlags = false
		cmd.AddCommand(c)
	}
	return cmd
}

func newClusterCerts(a *app) *cobra.Command {
	var valid time.Duration
	var renew bool
	cmd := &cobra.Command{
		Use:   "certs DIR NODE=HOST[,HOST…] …",
		Short: "Make an authority and node certificates",
		Long: `Make an authority, if DIR has none, and a certificate for each NODE, with --renew
in place of older ones. HOSTs are the names and addresses that others reach the node at.

Each node needs ca.crt, NODE.crt and NODE.key in its --certs directory. ca.key
signs new nodes: keep it off them. Nodes that run take new files as they come.`,
		Example: `  gnnactor cluster certs certs a=10.0.0.1 b=10.0.0.2,b.example
  gnnactor cluster certs --renew certs b=10.0.0.2,b.example`,
		Args: a.args(cobra.MinimumNArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			if valid < time.Hour {
				return usagef("--valid %v: must be at least 1h", valid)
			}
			hosts := make(map[string][]string)
			for _, arg := range args[1:] {
				node, list, ok := strings.Cut(arg, "=")
				if !ok || list == "" {
					return usagef("%q: it is NODE=HOST[,HOST…]", arg)
				}
				if err := transport.CheckNode(node); err != nil {
					return usagef("%v", err)
				}
				hosts[node] = strings.Split(list, ",")
			}
			dir := args[0]
			for node := range hosts {
				f := transport.NodeFiles(dir, node)
				for _, path := range []string{f.Cert, f.Key} {
					if _, err := os.Lstat(path); err == nil && !renew {
						return usagef("%s is there: node %s goes on with it; --renew makes a new key and certificate in its place", path, node)
					}
				}
			}
			authority, err := transport.LoadAuthority(dir)
			if errors.Is(err, fs.ErrNotExist) {
				if authority, err = transport.NewAuthority("gnnactor cluster", 10*valid); err == nil {
					err = authority.Save(dir)
				}
			}
			if err != nil {
				return err
			}
			for node, list := range hosts {
				f, err := authority.Issue(dir, node, list, valid)
				if err != nil {
					return err
				}
				a.logf("%s: %s and %s", node, f.Cert, f.Key)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&renew, "renew", false, "replace keys and certificates that are there")
	cmd.Flags().DurationVar(&valid, "valid", 365*24*time.Hour, "how long node certificates are valid; the authority is ten times as long")
	return cmd
}

// security is what every command that connects needs to know.
type security struct {
	node, certs string
	insecure    bool
}

func (s *security) addFlags(cmd *cobra.Command) {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	f := cmd.Flags()
	f.StringVar(&s.node, "node", host, "this node's `NAME`, as in its certificate")
	f.StringVar(&s.certs, "certs", "", "`DIR` with ca.crt, NODE.crt and NODE.key; none: no TLS, on loopback only")
	f.BoolVar(&s.insecure, "insecure", false, "allow plaintext off loopback: whoever reaches the ports may stop the cluster")
}

// files returns the node's certificate files; nil: plaintext.
func (s *security) files() (*transport.CertFiles, error) {
	if err := transport.CheckNode(s.node); err != nil {
		return nil, usagef("--node: %v", err)
	}
	if s.certs == "" {
		return nil, nil
	}
	f := transport.NodeFiles(s.certs, s.node)
	return &f, nil
}

func newClusterStart(a *app) *cobra.Command {
	var s security
	var listen, peers, advertise, dir string
	var join []string
	var heartbeat time.Duration
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run the cluster's store on this node",
		Long: `Run the cluster's store on this node, until it is interrupted. One is enough to
begin with; two more that --join it carry the store on when one dies.

It keeps 256 MiB of the disk for itself, in a file. When less than 64 MiB are free
beside that, it refuses writes until there is room, and says so; nodes go on as they
are meanwhile, and none can join.

When the authorities' file ca.crt changes the store starts anew, one server after
another; certificates of nodes are read again for every connection.`,
		Example: `  gnnactor cluster start --dir store
  gnnactor cluster start --node b --certs certs --listen 0.0.0.0:7400 --peers 0.0.0.0:7401 --advertise 10.0.0.2 --join 10.0.0.1:7400`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := s.files()
			if err != nil {
				return err
			}
			if heartbeat < 10*time.Millisecond || heartbeat > 5*time.Second {
				return usagef("--heartbeat %v: must be at least 10ms and at most 5s", heartbeat)
			}
			server, err := etcd.Serve(cmd.Context(), etcd.Options{
				Node: s.node, Dir: filepath.Join(dir, "etcd"), ClientListen: listen, PeerListen: peers, Advertise: advertise,
				Certs: files, AllowPlaintext: s.insecure, Join: join,
				Heartbeat: heartbeat, Election: 10 * heartbeat, Logger: slog.New(slog.NewTextHandler(a.stderr, nil)),
			})
			if err != nil {
				return err
			}
			a.logf("the store of the cluster serves at %s; train with --cluster %s", server.Endpoint(), server.Endpoint())
			select {
			case <-cmd.Context().Done():
				server.Close()
				return nil
			case <-server.Ended():
				return server.Err() // it cannot be closed
			case <-server.Outdated():
			}
			defer server.Close()
			// Others who carry the store see the same file change.
			if err := server.Turn(cmd.Context()); err != nil {
				return err
			}
			a.logf("%s has changed: the store starts anew", files.CA)
			return again()
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "gnnactor-node", "`DIR` that the node keeps its data in")
	f.StringVar(&listen, "listen", "127.0.0.1:7400", "`HOST:PORT` that nodes reach the store at")
	f.StringVar(&peers, "peers", "127.0.0.1:7401", "`HOST:PORT` that other stores reach this one at")
	f.StringVar(&advertise, "advertise", "", "`HOST` that others reach this node at (default: that of --peers)")
	f.DurationVar(&heartbeat, "heartbeat", 50*time.Millisecond, "of the store; a slow network's round trip. After ten to twenty of them another store leads")
	f.StringSliceVar(&join, "join", nil, "`HOST:PORT`s of a store to join")
	s.addFlags(cmd)
	return cmd
}

// again replaces this process by a new one with the same arguments. Nothing is
// closed first: clients see at once that their connections are gone.
func again() error {
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, os.Environ())
	}
	return fmt.Errorf("start anew: %w", err)
}
