// Opens a Pebble database and writes what it answers, one JSON object a line, to standard output.
//
//	go run ./opened DIRECTORY [cockroach]
//
// The last argument is for databases in CockroachDB's order of keys.
//
// Keys and values are hexadecimal.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/sstable"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	options := &pebble.Options{}
	if len(os.Args) > 2 {
		options.Comparer = &cockroachkvs.Comparer
		options.KeySchema = cockroachkvs.KeySchema.Name
		options.KeySchemas = sstable.MakeKeySchemas(&cockroachkvs.KeySchema)
	}
	db, err := pebble.Open(os.Args[1], options)
	check(err)
	iterator, err := db.NewIter(nil)
	check(err)
	for valid := iterator.First(); valid; valid = iterator.Next() {
		line, err := json.Marshal(map[string]string{
			"key": hex.EncodeToString(iterator.Key()), "value": hex.EncodeToString(iterator.Value()),
		})
		check(err)
		fmt.Println(string(line))
	}
	check(iterator.Error())
	check(iterator.Close())
	check(db.Close())
}
