// Writes a Pebble database, and the operations that its first log must hold, one JSON object a line, to standard output.
//
//	go run . DIRECTORY [old]
//
// With "old", the database has the oldest format that this Pebble writes. Keys and values are hexadecimal; of long ones,
// the digest.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

type operation struct {
	Sequence  uint64  `json:"sequence"`
	Operation string  `json:"operation"`
	Key       *string `json:"key"`
	Value     *string `json:"value"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	encoded := hex.EncodeToString(data)
	if len(data) > 1000 {
		sum := sha256.Sum256(data)
		encoded = "sha256:" + hex.EncodeToString(sum[:])
	}
	return &encoded
}

type recorder struct {
	db      *pebble.DB
	batch   *pebble.Batch
	waiting []operation
}

func (r *recorder) note(name string, key, value []byte) {
	r.waiting = append(r.waiting, operation{Operation: name, Key: text(key), Value: text(value)})
}

func (r *recorder) begin() { r.batch = r.db.NewBatch() }

func (r *recorder) commit(options *pebble.WriteOptions) {
	check(r.batch.Commit(options))
	sequence := uint64(r.batch.SeqNum())
	for _, one := range r.waiting {
		one.Sequence = sequence
		if one.Operation != "log_data" {
			sequence++
		}
		line, err := json.Marshal(one)
		check(err)
		fmt.Println(string(line))
	}
	r.waiting = nil
	check(r.batch.Close())
}

func main() {
	directory := os.Args[1]
	version := pebble.FormatNewest
	if len(os.Args) > 2 && os.Args[2] == "old" {
		version = pebble.FormatMinSupported
	}
	options := &pebble.Options{FormatMajorVersion: version, DisableAutomaticCompactions: true}
	options.EnsureDefaults()
	db, err := pebble.Open(directory, options)
	check(err)
	r := &recorder{db: db}
	for i := 0; i < 40; i++ {
		key, value := []byte(fmt.Sprintf("key%03d", i)), bytes.Repeat([]byte{byte(i)}, i*7)
		r.begin()
		check(r.batch.Set(key, value, nil))
		r.note("put", key, value)
		if i%5 == 0 {
			check(r.batch.Delete(key, nil))
			r.note("delete", key, nil)
			check(r.batch.LogData([]byte("remark"), nil))
			r.note("log_data", nil, []byte("remark"))
			check(r.batch.Merge(key, []byte("more"), nil))
			r.note("merge", key, []byte("more"))
		}
		if i%7 == 0 {
			check(r.batch.SingleDelete([]byte("single"), nil))
			r.note("single_delete", []byte("single"), nil)
			if version == pebble.FormatNewest {
				check(r.batch.DeleteSized([]byte("sized"), 300, nil))
				r.note("delete_sized", []byte("sized"), []byte{0xb1, 0x02})
			}
			check(r.batch.DeleteRange([]byte("x"), []byte("y"), nil))
			r.note("delete_range", []byte("x"), []byte("y"))
		}
		r.commit(pebble.Sync)
	}
	// Across blocks.
	large := bytes.Repeat([]byte("0123456789abcdef"), 2500)
	r.begin()
	check(r.batch.Set([]byte("large"), large, nil))
	r.note("put", []byte("large"), large)
	r.commit(pebble.NoSync)
	r.begin()
	check(r.batch.RangeKeySet([]byte("a"), []byte("c"), []byte("@3"), []byte("v"), nil))
	r.note("range_key_set", []byte("a"), append([]byte{1, 'c', 2}, []byte("@3\x01v")...))
	check(r.batch.RangeKeyUnset([]byte("a"), []byte("b"), []byte("@3"), nil))
	r.note("range_key_unset", []byte("a"), append([]byte{1, 'b', 2}, []byte("@3")...))
	check(r.batch.RangeKeyDelete([]byte("a"), []byte("b"), nil))
	r.note("range_key_delete", []byte("a"), []byte("b"))
	r.commit(pebble.Sync)
	// A table that overlaps what is in memory is ingested by way of the log.
	for round := 0; round < 2; round++ {
		table := filepath.Join(directory, "..", fmt.Sprintf("ingested%d.sst", round))
		file, err := vfs.Default.Create(table, vfs.WriteCategoryUnspecified)
		check(err)
		writer := sstable.NewWriter(objstorageprovider.NewFileWritable(file), options.MakeWriterOptions(0, db.TableFormat()))
		check(writer.Set([]byte("key001"), []byte("from a table")))
		check(writer.Close())
		if round == 0 {
			check(db.Ingest(context.Background(), []string{table}))
		} else {
			if version != pebble.FormatNewest {
				break
			}
			_, err = db.IngestAndExcise(context.Background(), []string{table}, nil, nil, pebble.KeyRange{Start: []byte("key000"), End: []byte("key003")})
			check(err)
		}
	}
	check(db.Close())
}
