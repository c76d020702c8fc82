// Writes a Pebble database whose data is in tables, and what it answers, one JSON object a line, to standard output.
//
//	go run ./tables DIRECTORY VERSION COMPARER ROWS COMPRESSION
//
// VERSION is a format major version. COMPARER is "plain" (the bytes), "at" (a key's versions follow an @) or "cockroach".
// Keys and values are hexadecimal.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Keys end in an @ and a version; those of one prefix follow each other.
func at() *pebble.Comparer {
	found := *pebble.DefaultComparer
	found.Name = "at"
	found.Split = func(key []byte) int {
		if i := bytes.LastIndexByte(key, '@'); i >= 0 {
			return i
		}
		return len(key)
	}
	return &found
}

func main() {
	directory := os.Args[1]
	version, err := strconv.Atoi(os.Args[2])
	check(err)
	rows, err := strconv.Atoi(os.Args[4])
	check(err)
	options := &pebble.Options{FormatMajorVersion: pebble.FormatMajorVersion(version), DisableAutomaticCompactions: true}
	key := func(number, stamp int) []byte { return []byte(fmt.Sprintf("user/%06d", number)) }
	switch os.Args[3] {
	case "at":
		options.Comparer = at()
		key = func(number, stamp int) []byte { return []byte(fmt.Sprintf("user/%06d@%02d", number, 99-stamp)) }
	case "cockroach":
		options.Comparer = &cockroachkvs.Comparer
		options.KeySchema = cockroachkvs.KeySchema.Name
		options.KeySchemas = sstable.MakeKeySchemas(&cockroachkvs.KeySchema)
		key = func(number, stamp int) []byte {
			plain := append([]byte(fmt.Sprintf("/Table/%06d", number)), 0)
			if number%5 == 4 {
				return plain
			}
			return cockroachkvs.AppendTimestamp(plain, uint64(1e18+stamp), uint32(stamp%2))
		}
	default:
		schema := colblk.DefaultKeySchema(pebble.DefaultComparer, 16)
		options.KeySchema = schema.Name
		options.KeySchemas = sstable.MakeKeySchemas(&schema)
	}
	profile := block.CompressionProfileByName(os.Args[5])
	for i := range options.Levels {
		options.Levels[i].Compression = func() *sstable.CompressionProfile { return profile }
		options.Levels[i].BlockSize = 2048
		options.Levels[i].IndexBlockSize = 512
	}
	if version >= int(pebble.FormatValueSeparation) {
		options.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
			return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 300, MaxBlobReferenceDepth: 10, TargetGarbageRatio: 1.0}
		}
	}
	db, err := pebble.Open(directory, options)
	check(err)
	dice := rand.New(rand.NewSource(1))
	value := func() []byte {
		found := make([]byte, dice.Intn(60))
		if dice.Intn(10) == 0 {
			found = make([]byte, 300+dice.Intn(900))
		}
		for i := range found {
			found[i] = "abcdefgh"[dice.Intn(8)]
		}
		return found
	}
	snapshots := []*pebble.Snapshot{}
	for round := 0; round < 3; round++ {
		for number := 0; number < rows; number++ {
			for stamp := 0; stamp < 1+number%4; stamp++ {
				check(db.Set(key(number, stamp+round%2), value(), pebble.NoSync))
			}
			if number%17 == round {
				check(db.Delete(key(number, 0), pebble.NoSync))
			}
			if number%19 == round && version >= int(pebble.FormatDeleteSizedAndObsolete) {
				check(db.DeleteSized(key(number, 1), 40, pebble.NoSync))
			}
			if number%23 == round {
				check(db.Merge(key(number, 1), []byte("+more"), pebble.NoSync))
			}
		}
		if os.Args[3] == "plain" {
			low := rows/2 + 10*round
			check(db.DeleteRange(key(low, 9), key(low+7, 9), pebble.NoSync))
		}
		if round < 2 {
			snapshots = append(snapshots, db.NewSnapshot())
			check(db.Flush())
		}
		if round == 0 {
			check(db.Compact(context.Background(), key(0, 9), key(rows, 0), false))
		}
	}
	if version >= int(pebble.FormatVirtualSSTables) && os.Args[3] == "plain" {
		check(db.Flush())
		_, err = db.IngestAndExcise(context.Background(), nil, nil, nil, pebble.KeyRange{Start: key(rows/4, 9), End: key(rows/4+3, 9)})
		check(err)
		check(db.Set(key(rows/4+1, 0), []byte("after"), pebble.Sync))
	}
	iterator, err := db.NewIter(nil)
	check(err)
	for valid := iterator.First(); valid; valid = iterator.Next() {
		line, err := json.Marshal(map[string]string{
			"key": hex.EncodeToString(iterator.Key()), "value": hex.EncodeToString(iterator.Value()),
		})
		check(err)
		fmt.Println(string(line))
	}
	check(iterator.Close())
	for _, one := range snapshots {
		check(one.Close())
	}
	check(db.Close())
}
