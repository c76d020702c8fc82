// An etcd that a test drives: one JSON command per line on standard input, one JSON answer per line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

type condition struct {
	Key    string
	Target string
	Result string
	Value  []byte
	Number int64
	EndOf  string
}

type command struct {
	Do       string
	Key      string
	End      string
	Value    []byte
	Lease    int64
	Keep     bool
	Revision int64
	Path     string
	If       []condition
	Then     []command
	Else     []command
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func conditionOf(c condition) clientv3.Cmp {
	var result clientv3.Cmp
	switch c.Target {
	case "value":
		result = clientv3.Compare(clientv3.Value(c.Key), c.Result, string(c.Value))
	case "version":
		result = clientv3.Compare(clientv3.Version(c.Key), c.Result, c.Number)
	case "create":
		result = clientv3.Compare(clientv3.CreateRevision(c.Key), c.Result, c.Number)
	case "mod":
		result = clientv3.Compare(clientv3.ModRevision(c.Key), c.Result, c.Number)
	case "lease":
		result = clientv3.Compare(clientv3.LeaseValue(c.Key), c.Result, c.Number)
	default:
		panic(c.Target)
	}
	if c.EndOf != "" {
		result = result.WithRange(c.EndOf)
	}
	return result
}

func operationOf(c command) clientv3.Op {
	switch c.Do {
	case "put":
		options := []clientv3.OpOption{}
		if c.Lease != 0 {
			options = append(options, clientv3.WithLease(clientv3.LeaseID(c.Lease)))
		}
		if c.Keep {
			options = append(options, clientv3.WithIgnoreValue())
			return clientv3.OpPut(c.Key, "", options...)
		}
		return clientv3.OpPut(c.Key, string(c.Value), options...)
	case "delete":
		if c.End != "" {
			return clientv3.OpDelete(c.Key, clientv3.WithRange(c.End))
		}
		return clientv3.OpDelete(c.Key)
	case "get":
		return clientv3.OpGet(c.Key)
	case "txn":
		conditions := []clientv3.Cmp{}
		for _, one := range c.If {
			conditions = append(conditions, conditionOf(one))
		}
		return clientv3.OpTxn(conditions, operationsOf(c.Then), operationsOf(c.Else))
	}
	panic(c.Do)
}

func operationsOf(commands []command) []clientv3.Op {
	operations := []clientv3.Op{}
	for _, one := range commands {
		operations = append(operations, operationOf(one))
	}
	return operations
}

func start(directory string, snapshots uint64, segment int64) *embed.Etcd {
	wal.SegmentSizeBytes = segment
	config := embed.NewConfig()
	config.Dir = directory
	config.LogLevel = "error"
	config.LogOutputs = []string{"stderr"}
	config.BackendBatchInterval = time.Hour // what the database holds is what `commit` has put there
	config.BackendBatchLimit = 1 << 30
	config.QuotaBackendBytes = 1 << 31
	config.SnapshotCount = snapshots
	config.MaxWalFiles = 5
	sockets := filepath.Dir(directory)
	client, _ := url.Parse("unix://" + filepath.Join(sockets, "c:0"))
	peer, _ := url.Parse("unix://" + filepath.Join(sockets, "p:0"))
	config.ListenClientUrls = []url.URL{*client}
	config.AdvertiseClientUrls = []url.URL{*client}
	config.ListenPeerUrls = []url.URL{*peer}
	config.AdvertisePeerUrls = []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	check(err)
	<-etcd.Server.ReadyNotify()
	return etcd
}

func main() {
	snapshots, err := strconv.ParseUint(os.Args[2], 10, 64)
	check(err)
	segment, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	etcd := start(os.Args[1], snapshots, segment)
	client := v3client.New(etcd.Server)
	background := context.Background()
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	check(answers.Encode("ready"))
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			etcd.Close()
			return
		}
		check(err)
		var c command
		check(json.Unmarshal(line, &c))
		var answer any = "done"
		switch c.Do {
		case "put", "delete", "txn":
			_, err = client.Do(background, operationOf(c))
		case "grant":
			var lease *clientv3.LeaseGrantResponse
			lease, err = client.Grant(background, 3600)
			if err == nil {
				answer = int64(lease.ID)
			}
		case "revoke":
			_, err = client.Revoke(background, clientv3.LeaseID(c.Lease))
		case "compact":
			_, err = client.Compact(background, c.Revision, clientv3.WithCompactPhysical())
		case "commit":
			etcd.Server.KV().Commit()
		case "defrag":
			err = etcd.Server.Backend().Defrag()
		case "snapshot":
			var stream io.ReadCloser
			var file *os.File
			stream, err = client.Snapshot(background)
			check(err)
			file, err = os.Create(c.Path)
			check(err)
			_, err = io.Copy(file, stream)
			check(file.Close())
		case "dump":
			var held *clientv3.GetResponse
			held, err = client.Get(background, "\x00", clientv3.WithFromKey(), clientv3.WithRev(c.Revision))
			if err == nil {
				kvs := []map[string][]byte{}
				for _, one := range held.Kvs {
					kvs = append(kvs, map[string][]byte{"key": one.Key, "value": one.Value})
				}
				answer = map[string]any{"kvs": kvs, "revision": held.Header.Revision}
			}
		case "die":
			check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		default:
			err = fmt.Errorf("no such command: %q", c.Do)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		check(answers.Encode(answer))
	}
}
