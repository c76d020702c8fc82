// Replays a workload in goleveldb and prints what it answers; see ../workload.py for the language.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

type step struct {
	Do, Low, High string
	Of            [][]string
	Sync          bool
	Options       opt.Options
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func bytes(text string) []byte {
	data, err := hex.DecodeString(text)
	check(err)
	return data
}

func main() {
	directory := os.Args[1]
	file, err := os.Open(os.Args[2])
	check(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	var db *leveldb.DB
	var options opt.Options
	snapshots := []*leveldb.Snapshot{}
	open := func() {
		db, err = leveldb.OpenFile(directory, &options)
		check(err)
	}
	for lines.Scan() {
		var one step
		check(json.Unmarshal(lines.Bytes(), &one))
		switch one.Do {
		case "open":
			options = one.Options
			open()
		case "write":
			batch := new(leveldb.Batch)
			for _, operation := range one.Of {
				if operation[0] == "put" {
					batch.Put(bytes(operation[1]), bytes(operation[2]))
				} else {
					batch.Delete(bytes(operation[1]))
				}
			}
			check(db.Write(batch, &opt.WriteOptions{Sync: one.Sync}))
		case "compact":
			check(db.CompactRange(util.Range{Start: bytes(one.Low), Limit: bytes(one.High)}))
		case "snapshot":
			taken, err := db.GetSnapshot()
			check(err)
			snapshots = append(snapshots, taken)
		case "release", "reopen":
			for _, taken := range snapshots {
				taken.Release()
			}
			snapshots = nil
			if one.Do == "reopen" {
				check(db.Close())
				open()
			}
		default:
			panic(one.Do)
		}
	}
	check(lines.Err())
	out := bufio.NewWriter(os.Stdout)
	iterator := db.NewIterator(nil, nil)
	for iterator.Next() {
		fmt.Fprintf(out, "[\"default\", \"%x\", \"%x\"]\n", iterator.Key(), iterator.Value())
	}
	check(iterator.Error())
	iterator.Release()
	fmt.Fprintln(out, "open")
	check(out.Flush())
	fmt.Scanln()
	check(db.Close())
}
