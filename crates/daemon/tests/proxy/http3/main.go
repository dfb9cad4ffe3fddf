// A server of HTTP/3: a page that downloads for eight seconds and tells what came. The argument is its
// address and port; the first line that it writes has the hash of its key.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quic-go/quic-go/http3"
)

const page = `<!doctype html><script>
onload = async () => {
  const reader = (await fetch("/data")).body.getReader(), start = performance.now();
  let bytes = 0, gap = 0, last = start;
  while (last - start < 8000) {
    bytes += (await reader.read()).value.length;
    const now = performance.now();
    gap = Math.max(gap, now - last); last = now;
  }
  reader.cancel();
  const by = performance.getEntriesByType("navigation")[0].nextHopProtocol;
  fetch("/done?bytes=" + bytes + "&gap=" + Math.round(gap) + "&by=" + by);
}
</script>`

func main() {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	host, _, _ := net.SplitHostPort(os.Args[1])
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(240 * time.Hour), IPAddresses: []net.IP{net.ParseIP(host)}}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	public, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
	hash := sha256.Sum256(public)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		fmt.Fprint(w, page)
	})
	mux.HandleFunc("/data", func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 1<<16)
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/done", func(w http.ResponseWriter, r *http.Request) { fmt.Println("done", r.URL.RawQuery) })
	own := tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{own}}
	server := http3.Server{Addr: os.Args[1], Handler: mux, TLSConfig: http3.ConfigureTLSConfig(tlsConfig)}
	fmt.Println("key", base64.StdEncoding.EncodeToString(hash[:]))
	panic(server.ListenAndServe())
}
