"""One partition on one disk.

| file | what it knows |
|---|---|
| `log` | the face: append, flush, read, look up, checkpoint, delete, close |
| `segment`, `open_files` | files of batches in order; how many of them are open |
| `reading`, `reader`, `lookup`, `walking` | reads by offset, searches by time, walks from front to back; every byte verified |
| `index`, `index_files` | where in a segment an offset or a time is to be found |
| `epochs` | which leader wrote what |
| `flushing`, `rewriting` | what is not on the disk yet; what may not be there after an unclean end |
| `checkpoint`, `small_files` | what a start goes by; small files that are whole or not believed |
| `recovery`, `tail_scan`, `tail`, `sweeping`, `found` | opening a log: what is there, and what a crash or a bad disk has made of it |
| `retention`, `deleting`, `truncating` | forgetting from the front, cutting at the end |
| `compacted_log`, `compaction` | leaving out what a later record of the same key has made needless: the protocol is told there |
| `dirt`, `key_map`, `chunks`, `sifting` | how much there is to do; the keys; walks away from the loop, and what they do to bytes |
| `swapping`, `reconciling` | putting a compacted segment in the place of others; a checkpoint that does not know of it yet |

Files of a log: `<first offset>.log` (batches as they came), `<first offset>-<end offset>-<generation>.log` (what compaction left of them),
an `.index` for each, `checkpoint`, `checkpoint.previous`, and for a while `*.tmp`, `*.deleted`, `*.dropped`, `*.renaming`. All but the
batches carry a format version and a checksum, and can be lost. Compaction may leave gaps between offsets, below `gaps_below` only.
"""
