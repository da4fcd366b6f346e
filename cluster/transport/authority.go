package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// The files of an authority and of a node.
const (
	AuthorityCert = "ca.crt"
	AuthorityKey  = "ca.key"
)

// CertFiles names the PEM files that a node serves from. CA may hold several
// authorities, one after another: while an authority is replaced, both.
type CertFiles struct{ CA, Cert, Key string }

// NodeFiles returns where `gnnactor cluster certs` puts a node's files.
func NodeFiles(dir, node string) CertFiles {
	return CertFiles{CA: filepath.Join(dir, AuthorityCert), Cert: filepath.Join(dir, node+".crt"), Key: filepath.Join(dir, node+".key")}
}

// clockSkew is how far behind a node's clock may be.
const clockSkew = 5 * time.Minute

// nodeName is what a node may be called: it becomes a file's name, a key of
// the store and a certificate's common name.
var nodeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// CheckNode reports why name cannot be a node's.
func CheckNode(name string) error {
	if !nodeName().MatchString(name) {
		return fmt.Errorf("transport: node name %q: use 1 to 63 of a-z, 0-9 and -, not beginning or ending with -", name)
	}
	return nil
}

// Authority signs node certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a new key.
func NewAuthority(name string, valid time.Duration) (*Authority, error) {
	key, der, err := new(Authority).sign(name, valid, func(t *x509.Certificate) {
		t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
		t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return &Authority{cert, key}, nil
}

// sign makes a key, and a certificate of it, which is by itself where there is no authority yet.
func (a *Authority) sign(name string, valid time.Duration, fill func(*x509.Certificate)) (key *ecdsa.PrivateKey, der []byte, err error) {
	if valid <= 0 {
		return nil, nil, fmt.Errorf("transport: a validity of %v; it must be positive", valid)
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("transport: %w", err)
	}
	now := time.Now()
	t := &x509.Certificate{ // with a serial number by chance
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(valid),
	}
	fill(t)
	by, with := t, key
	if a.key != nil {
		by, with = a.cert, a.key
	}
	if der, err = x509.CreateCertificate(rand.Reader, t, by, &key.PublicKey, with); err != nil {
		return nil, nil, fmt.Errorf("transport: %s: %w", name, err)
	}
	return key, der, nil
}

// LoadAuthority reads what Save wrote.
func LoadAuthority(dir string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, AuthorityCert), filepath.Join(dir, AuthorityKey))
	if err != nil {
		return nil, fmt.Errorf("transport: the authority in %s: %w", dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("transport: %s holds no ECDSA key", filepath.Join(dir, AuthorityKey))
	}
	return &Authority{pair.Leaf, key}, nil
}

// Save writes ca.crt and ca.key to dir. The key needs to be on no node: keep it
// where certificates are made. Files that exist are not overwritten.
func (a *Authority) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	key, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	for _, name := range []string{AuthorityCert, AuthorityKey} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("transport: %s exists; remove it, or choose another directory", filepath.Join(dir, name))
		}
	}
	return write(
		pemFile{filepath.Join(dir, AuthorityKey), 0o600, "EC PRIVATE KEY", key},
		pemFile{filepath.Join(dir, AuthorityCert), 0o644, "CERTIFICATE", a.cert.Raw})
}

// Issue writes a certificate and a new key for node into dir, replacing older
// ones: key first, each by a rename, so that a node that reads them meanwhile
// sees either pair or a pair that does not match, which it passes over.
// Hosts are the names and addresses that others reach the node at.
func (a *Authority) Issue(dir, node string, hosts []string, valid time.Duration) (CertFiles, error) {
	if err := CheckNode(node); err != nil {
		return CertFiles{}, err
	}
	if len(hosts) == 0 {
		return CertFiles{}, fmt.Errorf("transport: node %s: no host; name those that others reach it at", node)
	}
	key, der, err := a.sign(node, valid, func(t *x509.Certificate) {
		t.KeyUsage = x509.KeyUsageDigitalSignature
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		for _, h := range hosts {
			if ip := net.ParseIP(h); ip != nil {
				t.IPAddresses = append(t.IPAddresses, ip)
			} else {
				t.DNSNames = append(t.DNSNames, h)
			}
		}
	})
	if err != nil {
		return CertFiles{}, err
	}
	kb, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return CertFiles{}, fmt.Errorf("transport: %w", err)
	}
	f := NodeFiles(dir, node)
	return f, write(pemFile{f.Key, 0o600, "EC PRIVATE KEY", kb}, pemFile{f.Cert, 0o644, "CERTIFICATE", der})
}

// pemFile is a file of one PEM block.
type pemFile struct {
	path string
	mode fs.FileMode
	kind string
	der  []byte
}

// write replaces files, in this order, once all of them are on the disk: one that
// is full leaves an old key with its certificate.
func write(files ...pemFile) (err error) {
	made := make([]*atomicfile.File, 0, len(files))
	defer func() {
		if err != nil {
			for _, f := range made {
				err = errors.Join(err, f.Abort())
			}
			err = fmt.Errorf("transport: %w", err)
		}
	}()
	for _, p := range files {
		f, err := atomicfile.Create(p.path, p.mode)
		if err != nil {
			return err
		}
		made = append(made, f)
		if err := errors.Join(pem.Encode(f, &pem.Block{Type: p.kind, Bytes: p.der}), f.Finish()); err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
	}
	for len(made) > 0 {
		if err := made[0].Replace(); err != nil {
			return err
		}
		made = made[1:]
	}
	return nil
}
