// Writes a block store of CometBFT, and what it reads of it: cometdb TARGET
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	dbm "github.com/cometbft/cometbft-db"
	"github.com/cometbft/cometbft/crypto/ed25519"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	cmtversion "github.com/cometbft/cometbft/proto/tendermint/version"
	"github.com/cometbft/cometbft/store"
	"github.com/cometbft/cometbft/types"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	db, err := dbm.NewGoLevelDB("blockstore", os.Args[1])
	check(err)
	blocks := store.NewBlockStore(db)
	key := ed25519.GenPrivKeyFromSecret([]byte("sawlog"))
	hash := bytes.Repeat([]byte{7}, 32)
	last := types.BlockID{}
	lastCommit := &types.Commit{}
	for height := int64(1); height <= 3; height++ {
		txs := types.Txs{types.Tx("name=value")}
		if height == 3 {
			txs = append(txs, types.Tx(bytes.Repeat([]byte("x"), 66000)))
		}
		block := types.MakeBlock(height, txs, lastCommit, nil)
		at := time.Date(2026, 1, 2, 3, 4, int(height), 123456789, time.UTC)
		block.Header.Populate(cmtversion.Consensus{Block: 11, App: 1}, "sawlog-1", at, last, hash, hash, hash, hash, hash, key.PubKey().Address())
		parts, err := block.MakePartSet(types.BlockPartSizeBytes)
		check(err)
		id := types.BlockID{Hash: block.Hash(), PartSetHeader: parts.Header()}
		commit := &types.Commit{Height: height, Round: 0, BlockID: id, Signatures: []types.CommitSig{
			{BlockIDFlag: types.BlockIDFlagCommit, ValidatorAddress: key.PubKey().Address(), Timestamp: at.Add(time.Second), Signature: bytes.Repeat([]byte{9}, 64)},
			types.NewCommitSigAbsent(),
		}}
		blocks.SaveBlock(block, parts, commit)
		last, lastCommit = id, commit
	}
	truth := []map[string]json.RawMessage{}
	for height := blocks.Base(); height <= blocks.Height(); height++ {
		block, err := cmtjson.Marshal(blocks.LoadBlock(height))
		check(err)
		meta, err := cmtjson.Marshal(blocks.LoadBlockMeta(height))
		check(err)
		seen, err := cmtjson.Marshal(blocks.LoadSeenCommit(height))
		check(err)
		shown := map[string]json.RawMessage{"meta": meta, "seen": seen}
		if blocks.LoadBlockMeta(height).BlockID.PartSetHeader.Total == 1 {
			shown["block"] = block
		}
		truth = append(truth, shown)
	}
	check(blocks.Close())
	out, err := json.MarshalIndent(truth, "", " ")
	check(err)
	check(os.WriteFile(filepath.Join(os.Args[1], "truth.json"), out, 0o644))
}
