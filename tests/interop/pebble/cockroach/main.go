// Writes a Pebble database in CockroachDB's order of keys, and prints what it holds, a row a line.
//
//	cockroach DIRECTORY CASE SEED
//
// CASE is ranges (deletions of ranges), cuts (also excises, which leave parts of tables) or external (also tables of
// remote storage, with prefixes and suffixes that are not in them). All have range keys. Some processes end without
// closing the database.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/objstorage/remote"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const newest = 50

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// stem draws a key without a version; some hold zeros, and some begin others.
func stem(dice *rand.Rand) []byte {
	stems := []string{"a%d", "a%d\x00", "a%d\x00\x01", "b%d\xff", "", "\x00", "c%d\x00\x00"}
	text := stems[dice.Intn(len(stems))]
	if bytes.Contains([]byte(text), []byte("%d")) {
		text = fmt.Sprintf(text, dice.Intn(12))
	}
	return append([]byte("/"+text), 0)
}

// version draws a version: none, a time, a time that counts, one that is equal to a time, or that of a lock.
func version(dice *rand.Rand) []byte {
	wall := uint64(1 + dice.Intn(newest))
	switch dice.Intn(6) {
	case 0:
		return nil
	case 1:
		return cockroachkvs.NewTimestampSuffix(wall, uint32(1+dice.Intn(3)))
	case 2:
		counted := cockroachkvs.NewTimestampSuffix(wall, 1)
		counted[11] = byte(dice.Intn(2))
		if dice.Intn(2) == 0 {
			return counted
		}
		return append(append(counted[:12:12], byte(dice.Intn(2))), 14)
	case 3:
		lock := bytes.Repeat([]byte{byte(dice.Intn(4))}, 17)
		return append(lock, 18)
	}
	return cockroachkvs.NewTimestampSuffix(wall, 0)
}

func key(dice *rand.Rand) []byte { return append(stem(dice), version(dice)...) }

// span draws two keys in order, with versions or without.
func span(dice *rand.Rand, draw func(*rand.Rand) []byte) ([]byte, []byte) {
	for {
		low, high := draw(dice), draw(dice)
		if order := cockroachkvs.Compare(low, high); order < 0 {
			return low, high
		} else if order > 0 {
			return high, low
		}
	}
}

func value(dice *rand.Rand) []byte {
	drawn := make([]byte, dice.Intn(60))
	dice.Read(drawn)
	return drawn
}

// ingest has the database take in a part of a table of remote storage, under other keys than it has.
func ingest(db *pebble.DB, storage remote.Storage, locator remote.Locator, dice *rand.Rand, step int) {
	name := fmt.Sprintf("external%d", step)
	object, err := storage.CreateObject(name)
	check(err)
	writer := sstable.NewWriter(objstorageprovider.NewRemoteWritable(object), sstable.WriterOptions{
		TableFormat: db.TableFormat(), Comparer: &cockroachkvs.Comparer, KeySchema: &cockroachkvs.KeySchema, BlockSize: 64,
	})
	replaced := dice.Intn(2) == 0
	stems := map[string]bool{}
	for i := 0; i < 4+dice.Intn(20); i++ {
		stems[string(stem(dice))] = true
	}
	sorted := []string{}
	for each := range stems {
		sorted = append(sorted, each)
	}
	sort.Strings(sorted)
	for _, each := range sorted {
		versions := [][]byte{version(dice)}
		if !replaced && dice.Intn(2) == 0 {
			versions = append(versions, version(dice))
		}
		if replaced && dice.Intn(3) == 0 {
			versions[0] = nil
		} else if replaced {
			versions[0] = cockroachkvs.NewTimestampSuffix(uint64(1+dice.Intn(newest)), 0)
		}
		sort.Slice(versions, func(i, j int) bool { return cockroachkvs.ComparePointSuffixes(versions[i], versions[j]) < 0 })
		for i, suffix := range versions {
			if i > 0 && cockroachkvs.ComparePointSuffixes(versions[i-1], suffix) == 0 {
				continue
			}
			if dice.Intn(6) == 0 {
				check(writer.Delete(append([]byte(each), suffix...)))
			} else {
				check(writer.Set(append([]byte(each), suffix...), value(dice)))
			}
		}
	}
	if !replaced && dice.Intn(3) == 0 {
		low, high := span(dice, key)
		check(writer.DeleteRange(low, high))
	}
	check(writer.Close())
	size, err := storage.Size(name)
	check(err)
	low, high := span(dice, stem)
	external := pebble.ExternalFile{Locator: locator, ObjName: name, Size: uint64(size), HasPointKey: true}
	if replaced {
		external.SyntheticSuffix = cockroachkvs.NewTimestampSuffix(uint64(newest+1+dice.Intn(5)), uint32(dice.Intn(2)))
	}
	files := []pebble.ExternalFile{}
	for _, prefix := range [][]byte{nil, []byte("/a"), []byte("/x"), []byte("/y\x00")} {
		if dice.Intn(2) == 0 {
			external.SyntheticPrefix = prefix
			external.StartKey = append(append([]byte{}, prefix...), low...)
			external.EndKey = append(append([]byte{}, prefix...), high...)
			files = append(files, external)
		}
	}
	for _, file := range files {
		_, err = db.IngestExternalFiles(context.Background(), []pebble.ExternalFile{file})
		check(err)
	}
}

func main() {
	directory, kind := os.Args[1], os.Args[2]
	seed, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	dice := rand.New(rand.NewSource(seed))
	first := int(pebble.FormatFlushableIngestExcises)
	options := &pebble.Options{
		Comparer:                    &cockroachkvs.Comparer,
		KeySchema:                   cockroachkvs.KeySchema.Name,
		KeySchemas:                  sstable.MakeKeySchemas(&cockroachkvs.KeySchema),
		FormatMajorVersion:          pebble.FormatMajorVersion(first + dice.Intn(int(pebble.FormatNewest)-first+1)),
		DisableAutomaticCompactions: dice.Intn(3) > 0,
		MemTableSize:                1 << 14,
		L0StopWritesThreshold:       1000,
	}
	for i := range options.Levels {
		options.Levels[i].BlockSize = 128
	}
	options.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 30, MaxBlobReferenceDepth: 4, RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.5,
		}
	}
	locator := remote.Locator("remote")
	storage := remote.NewLocalFS(filepath.Join(directory, "remote"), vfs.Default)
	if kind == "external" {
		check(os.MkdirAll(filepath.Join(directory, "remote"), 0o755))
		options.Experimental.RemoteStorage = remote.MakeSimpleFactory(map[remote.Locator]remote.Storage{locator: storage})
	}
	db, err := pebble.Open(filepath.Join(directory, "db"), options)
	check(err)
	if kind == "external" {
		check(db.SetCreatorID(uint64(1 + dice.Intn(9))))
	}
	for step := 0; step < 60+dice.Intn(300); step++ {
		switch draw := dice.Intn(40); {
		case draw < 4:
			check(db.Delete(key(dice), pebble.Sync))
		case draw < 6:
			check(db.Merge(key(dice), []byte("+m"), pebble.Sync))
		case draw < 9:
			low, high := span(dice, key)
			if dice.Intn(2) == 0 {
				low, high = span(dice, stem)
			}
			check(db.DeleteRange(low, high, pebble.Sync))
		case draw < 11:
			low, high := span(dice, stem)
			check(db.RangeKeySet(low, high, cockroachkvs.NewTimestampSuffix(uint64(1+dice.Intn(newest)), 0), nil, pebble.Sync))
		case draw < 12:
			low, high := span(dice, stem)
			check(db.RangeKeyDelete(low, high, pebble.Sync))
		case draw < 14 && kind != "ranges":
			low, high := span(dice, stem)
			check(db.Excise(context.Background(), pebble.KeyRange{Start: low, End: high}))
		case draw < 16 && kind == "external":
			ingest(db, storage, locator, dice, step)
		case draw < 18:
			check(db.Flush())
		default:
			check(db.Set(key(dice), value(dice), pebble.Sync))
		}
	}
	rows, err := db.NewIter(nil)
	check(err)
	for valid := rows.First(); valid; valid = rows.Next() {
		held, err := rows.ValueAndErr()
		check(err)
		fmt.Println(hex.EncodeToString(rows.Key()) + "\t" + hex.EncodeToString(held))
	}
	check(rows.Error())
	check(rows.Close())
	if dice.Intn(2) == 0 {
		check(db.Close())
	}
}
