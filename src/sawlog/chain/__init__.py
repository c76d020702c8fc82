"""Chains of self-sized records: one walker in Numba, one driver in Python.

A **chain** is a sequence of adjacent things, each of which states its own size: fragments, entries, records,
events. Things may be in a grid of blocks, or within outer things that are chained themselves.

Who brings a format onto it writes, in this order:

1. `layout.py`: every number of the layout once, places as `sawlog.kernels.layout.Number`.
2. `kernels`: `Rules` (what the options and the head of the file say), `Out` (where rows go, and `events`), the state
   (`sawlog.chain.kernels.make_state_type` with the names of the format's own), four functions, and a kernel of one
   line. The four are `@always_inlined`: to call them would cost more than they do.

    @always_inlined
    def judge(window, pos, state, rules): ...                    # -> verdict, size. The only one that judges.
    @always_inlined
    def run(window, pos, state, out, rules): ...                 # -> pos. The loop over plain rows; or `run_nothing`
    @always_inlined
    def gather(window, pos, size, state, out, rules): ...        # -> outcome. Takes one good thing; or `take_row`
    @always_inlined
    def on_damage(window, start, length, state, out, rules): ...      # -> outcome. Takes in damage; or `note_damage`

    @kernel
    def read(window, state, out, rules):
        return walk_chain(run, judge, gather, on_damage, window, state, out, rules)

3. a `sawlog.chain.walk.ChainWalk`, which drives the kernel: it owns windows, hand-over, damage, tail and account, and
   asks the format to `read` (call the kernel), to `deliver` rows as batches, and to `reset` its memory.

Everything that has to know where a thing ends, or whether it is whole, asks `judge`: a scan for cuts and a count walk
with the same `judge` and an `Out` that keeps nothing; recognition calls it for one place (see `judge_one` below).

- `judge` must answer only from the bytes, the rules and the position as far as it can, never from where a window ends:
  where it would look beyond the window it answers SHORT with the bytes it needs, or, where that is far, sets
  `state.position` and answers AWAY: it is asked again there, and comes back by the same way.
- Positions in a window are uint64 (`pos`), file offsets too (`window.base + pos`); the state holds int64, -1 for none.
- Of what is damaged, `judge` leaves `state.kind`, `state.one` and `state.two` for the message, and answers DAMAGED with
  the bytes that are lost, or LOST with the bytes that are lost at least: then it is asked again, with `state.lost` set,
  and answers with `sawlog.chain.kernels.search_chain`, which tries place after place.
- Things within things: `judge` answers HEADER with the bytes of the outer header, and keeps the end of the outer thing
  in a field of its own in the state, by which it knows whom to judge next. What is left of it is PADDING.
- What is only sure once a later thing is seen (a set, a record in pieces) is kept in the state by `gather`, which may
  also set `state.position` back and answer BACK, to walk again over what it now knows to be good.
"""
