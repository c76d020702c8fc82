// Replays a workload in Pebble and prints what it answers; see ../workload.py for the language.
//
//	driver DIRECTORY WORKLOAD
//
// One source for all releases: arguments that only some of them take are supplied by `call`, and the import paths
// of Pebble 2 are rewritten for Pebble 1 before it is built.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

type step struct {
	Do      string
	Of      [][]string
	Sync    bool
	Low     string
	High    string
	Options options
	Tables  []table
}

type options struct {
	Format int
	Text   string
	Split  bool
}

type table struct {
	Format   int
	Checksum int
	Of       [][]string
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// call calls a method by its name, with those of the arguments that this release takes and zeros for all others.
func call(on any, name string, arguments ...any) reflect.Value {
	method := reflect.ValueOf(on).MethodByName(name)
	taken := []reflect.Value{}
	arguments = append(arguments, context.Background())
	for i := 0; i < method.Type().NumIn(); i++ {
		wanted := method.Type().In(i)
		value := reflect.Zero(wanted)
		for at, one := range arguments {
			if one != nil && fits(reflect.TypeOf(one), wanted) {
				value, arguments[at] = reflect.ValueOf(one).Convert(wanted), nil
				break
			}
		}
		taken = append(taken, value)
	}
	if method.Type().IsVariadic() {
		taken = taken[:len(taken)-1]
	}
	results := method.Call(taken)
	last := results[len(results)-1]
	if err, failed := last.Interface().(error); failed {
		panic(err)
	}
	return results[0]
}

func fits(given, wanted reflect.Type) bool {
	if wanted.Kind() == reflect.Interface {
		return wanted.Name() == "Context" && given.Implements(wanted)
	}
	return given.Kind() == wanted.Kind() && given.ConvertibleTo(wanted)
}

type span struct{ Start, End []byte }

type writable struct{ *os.File }

func (w writable) Write(data []byte) error     { _, err := w.File.Write(data); return err }
func (w writable) Finish() error               { return w.Close() }
func (w writable) Abort()                      { w.Close() }
func (w writable) StartMetadataPortion() error { return nil }

func keys(operation []string) [][]byte {
	found := [][]byte{}
	for _, one := range operation[1:] {
		data, err := hex.DecodeString(one)
		check(err)
		found = append(found, data)
	}
	return found
}

func replay(batch *pebble.Batch, operations [][]string) {
	for _, one := range operations {
		k := keys(one)
		switch one[0] {
		case "put":
			check(batch.Set(k[0], k[1], nil))
		case "delete":
			check(batch.Delete(k[0], nil))
		case "single_delete":
			check(batch.SingleDelete(k[0], nil))
		case "delete_sized":
			call(batch, "DeleteSized", k[0], uint32(len(k[1])))
		case "merge":
			check(batch.Merge(k[0], k[1], nil))
		case "delete_range":
			check(batch.DeleteRange(k[0], k[1], nil))
		case "range_key_set":
			check(batch.RangeKeySet(k[0], k[1], k[2], k[3], nil))
		case "range_key_delete":
			check(batch.RangeKeyDelete(k[0], k[1], nil))
		case "log_data":
			check(batch.LogData(k[0], nil))
		default:
			panic(one[0])
		}
	}
}

func fill(writer *sstable.Writer, operations [][]string) {
	for _, one := range operations {
		k := keys(one)
		switch one[0] {
		case "put":
			check(writer.Set(k[0], k[1]))
		case "delete":
			check(writer.Delete(k[0]))
		case "merge":
			check(writer.Merge(k[0], k[1]))
		case "delete_range":
			check(writer.DeleteRange(k[0], k[1]))
		case "range_key_set":
			check(writer.RangeKeySet(k[0], k[1], k[2], k[3]))
		default:
			panic(one[0])
		}
	}
	check(writer.Close())
}

func opened(directory string, wanted options) (*pebble.DB, *pebble.Options) {
	version := pebble.FormatMajorVersion(wanted.Format)
	if version > pebble.FormatNewest {
		version = pebble.FormatNewest
	}
	found := &pebble.Options{FormatMajorVersion: version}
	check(found.Parse(wanted.Text, &pebble.ParseHooks{SkipUnknown: func(string, string) bool { return true }}))
	if wanted.Split {
		comparer := *pebble.DefaultComparer
		comparer.Split = func(key []byte) int {
			if at := bytes.LastIndexByte(key, '@'); at >= 0 {
				return at
			}
			return len(key)
		}
		found.Comparer = &comparer
	}
	found.EnsureDefaults()
	db, err := pebble.Open(directory, found)
	check(err)
	return db, found
}

func ingest(db *pebble.DB, options *pebble.Options, directory string, one step) {
	paths := []string{}
	for number, table := range one.Tables {
		path := filepath.Join(directory, "..", fmt.Sprintf("%s-%d.sst", filepath.Base(directory), number))
		file, err := os.Create(path)
		check(err)
		format := sstable.TableFormat(table.Format)
		if most := db.FormatMajorVersion().MaxTableFormat(); format > most {
			format = most
		}
		made := options.MakeWriterOptions(table.Checksum%7, format)
		reflect.ValueOf(&made).Elem().FieldByName("Checksum").Set(
			reflect.ValueOf(table.Checksum).Convert(reflect.TypeOf(made.Checksum)))
		fill(sstable.NewWriter(writable{file}, made), table.Of)
		paths = append(paths, path)
	}
	if one.High == "" {
		call(db, "Ingest", paths)
		return
	}
	bounds := keys([]string{"", one.Low, one.High})
	call(db, "IngestAndExcise", paths, span{bounds[0], bounds[1]})
}

func main() {
	directory := os.Args[1]
	file, err := os.Open(os.Args[2])
	check(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	var db *pebble.DB
	var current *pebble.Options
	var wanted options
	snapshots := []*pebble.Snapshot{}
	release := func() {
		for _, one := range snapshots {
			check(one.Close())
		}
		snapshots = nil
	}
	for lines.Scan() {
		var one step
		check(json.Unmarshal(lines.Bytes(), &one))
		switch one.Do {
		case "open":
			wanted = one.Options
			db, current = opened(directory, wanted)
		case "write":
			batch := db.NewBatch()
			replay(batch, one.Of)
			check(batch.Commit(&pebble.WriteOptions{Sync: one.Sync}))
		case "flush":
			check(db.Flush())
		case "compact":
			bounds := keys([]string{"", one.Low, one.High})
			call(db, "Compact", bounds[0], bounds[1])
		case "ingest":
			ingest(db, current, directory, one)
		case "snapshot":
			snapshots = append(snapshots, db.NewSnapshot())
		case "release":
			release()
		case "reopen":
			release()
			check(db.Close())
			db, current = opened(directory, wanted)
		default:
			panic(one.Do)
		}
	}
	check(lines.Err())
	out := bufio.NewWriter(os.Stdout)
	iterator := call(db, "NewIter", &pebble.IterOptions{}).Interface().(*pebble.Iterator)
	for valid := iterator.First(); valid; valid = iterator.Next() {
		fmt.Fprintf(out, "[\"default\", \"%x\", \"%x\"]\n", iterator.Key(), iterator.Value())
	}
	check(iterator.Close())
	fmt.Fprintln(out, "open")
	check(out.Flush())
	fmt.Scanln()
	release()
	check(db.Close())
}
