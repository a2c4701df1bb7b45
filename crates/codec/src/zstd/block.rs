//! One block: its codes, their cost, and its bytes. RFC 8878, section 3.1.1.2.

use super::codes::{Counts, Sequence};
use super::fse::{COST_BITS, Distribution, IMPOSSIBLE, Table};
use super::literals::LiteralCode;
use crate::bits::BitWriter;
use crate::words::for_processor;

/// Length of a block header: the flag of the last block, the kind, the length.
pub(super) const HEADER_LEN: usize = 3;
/// Flag of the last block, in the lowest bit of a header.
pub(super) const LAST: u8 = 1;
const KIND_PLAIN: u32 = 0;
const KIND_COMPRESSED: u32 = 2;

/// Kinds of tables in a block.
const PREDEFINED: u8 = 0;
const CONSTANT: u8 = 1;
const DESCRIBED: u8 = 2;

/// Distributions predefined by the format, section 3.1.1.3.2.2.
const LITERAL_CODES: Distribution = Distribution::predefined(
    6,
    &[4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1],
);
const MATCH_CODES: Distribution = Distribution::predefined(
    6,
    &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
);
const OFFSET_CODES: Distribution = Distribution::predefined(
    5,
    &[1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
);
/// Largest table logs of each kind of code.
const LITERAL_LOG_MAX: u32 = 9;
const MATCH_LOG_MAX: u32 = 9;
const OFFSET_LOG_MAX: u32 = 8;

/// Codes for a block.
pub(super) struct BlockCode {
    literals: LiteralCode,
    literal_codes: CodeTable,
    match_codes: CodeTable,
    offset_codes: CodeTable,
    /// Expected length of the block with all its tokens, without its header: exact within some
    /// bytes.
    pub(super) len: usize,
}

/// Coding of one kind of code.
struct CodeTable {
    kind: u8,
    /// Bits of each code, times `2^COST_BITS`.
    costs: [u32; 53],
    /// Description of the table, written before the sequences.
    description: [u8; 64],
    description_len: usize,
    table: Table,
}

impl BlockCode {
    /// Returns true if a block of `text_len` bytes should be coded at all. If not, readers do not
    /// see its sequences, and the recent offsets stay as they were before it.
    pub(super) fn pays(&self, text_len: usize) -> bool {
        self.len < text_len
    }

    pub(super) fn new(counts: &Counts) -> BlockCode {
        let (literals, literal_len) = LiteralCode::new(&counts.literals, counts.literal_count as usize);
        let [of_literals, of_matches, of_offsets] = counts.codes();
        let (literal_codes, literal_bits) = CodeTable::new(of_literals, &LITERAL_CODES, LITERAL_LOG_MAX);
        let (match_codes, match_bits) = CodeTable::new(of_matches, &MATCH_CODES, MATCH_LOG_MAX);
        let (offset_codes, offset_bits) = CodeTable::new(of_offsets, &OFFSET_CODES, OFFSET_LOG_MAX);
        let sequence_bits = literal_bits + match_bits + offset_bits + counts.extra_bits;
        let sequence_len = match counts.sequence_count {
            0 => 1,
            n => count_len(n as usize) + 1 + sequence_bits.div_ceil(8) as usize + 4, // the first states, and the end
        };
        BlockCode { literals, literal_codes, match_codes, offset_codes, len: literal_len + sequence_len }
    }

    /// Returns the bits of a literal, times `2^COST_BITS`.
    pub(super) fn literal_cost(&self, literal: u8) -> u32 {
        self.literals.bits(literal) << COST_BITS
    }

    /// Returns the bits of a sequence without its literals, times `2^COST_BITS`.
    pub(super) fn sequence_cost(&self, sequence: &Sequence) -> u32 {
        self.literal_codes.costs[usize::from(sequence.literal_code)]
            + self.match_codes.costs[usize::from(sequence.match_code)]
            + self.offset_codes.costs[usize::from(sequence.offset_code)]
            + (u32::from(sequence.extra_bits) << COST_BITS)
    }

    /// Writes a block of these literals and sequences, not marked as the last one, and returns its
    /// length. `out` must have room for an uncompressed one, and some more.
    pub(super) fn write(&self, literals: &[u8], sequences: &[Sequence], out: &mut [u8]) -> usize {
        let mut end = HEADER_LEN + self.literals.write(literals, &mut out[HEADER_LEN..]);
        end += self.write_sequences(sequences, &mut out[end..]);
        write_header(KIND_COMPRESSED, end - HEADER_LEN, out);
        end
    }

    fn write_sequences(&self, sequences: &[Sequence], out: &mut [u8]) -> usize {
        let count = sequences.len();
        let mut end = count_len(count);
        match end {
            1 => out[0] = count as u8,
            2 => out[..2].copy_from_slice(&[(count >> 8) as u8 + 128, count as u8]),
            _ => {
                out[0] = 255;
                out[1..3].copy_from_slice(&((count - 0x7F00) as u16).to_le_bytes());
            }
        }
        if sequences.is_empty() {
            return end;
        }
        let tables = [&self.literal_codes, &self.offset_codes, &self.match_codes];
        out[end] = tables[0].kind << 6 | tables[1].kind << 4 | tables[2].kind << 2;
        end += 1;
        for CodeTable { description, description_len, .. } in tables {
            out[end..][..*description_len].copy_from_slice(&description[..*description_len]);
            end += description_len;
        }
        end + code_sequences(tables.map(|table| &table.table), sequences, &mut out[end..])
    }
}

/// Writes the bits of the sequences by the tables of literal lengths, offsets and match lengths.
/// Returns their length in bytes.
fn code_sequences(tables: [&Table; 3], sequences: &[Sequence], out: &mut [u8]) -> usize {
    for_processor!(
        code_sequences_now => (
            tables => tables: [&Table; 3],
            sequences => sequences: &[Sequence],
            out => out: &mut [u8]
        ) -> usize
    )
}

#[inline(always)]
fn code_sequences_now([literals, offsets, matches]: [&Table; 3], sequences: &[Sequence], out: &mut [u8]) -> usize {
    let Some((last, rest)) = sequences.split_last() else { return 0 };
    let mut writer = BitWriter::new(out);
    let mut literal = literals.start(last.literal_code);
    let mut matched = matches.start(last.match_code);
    let mut offset = offsets.start(last.offset_code);
    writer.put(last.extra(), last.extra_bits.into());
    for sequence in rest.iter().rev() {
        let (mut bits, mut len) = offsets.code(&mut offset, sequence.offset_code);
        let (more, more_len) = matches.code(&mut matched, sequence.match_code);
        (bits, len) = (bits | more << len, len + more_len);
        let (more, more_len) = literals.code(&mut literal, sequence.literal_code);
        (bits, len) = (bits | more << len, len + more_len);
        let extra_bits = u32::from(sequence.extra_bits);
        if len + extra_bits <= BitWriter::PUT_MAX {
            writer.put(bits | sequence.extra() << len, len + extra_bits);
        } else {
            writer.put(bits, len);
            writer.put(sequence.extra(), extra_bits);
        }
    }
    matches.finish(matched, &mut writer);
    offsets.finish(offset, &mut writer);
    literals.finish(literal, &mut writer);
    writer.put(1, 1);
    writer.finish()
}

/// Writes a block of uncompressed text, not marked as the last one, and returns its length.
pub(super) fn write_plain(text: &[u8], out: &mut [u8]) -> usize {
    write_header(KIND_PLAIN, text.len(), out);
    out[HEADER_LEN..][..text.len()].copy_from_slice(text);
    HEADER_LEN + text.len()
}

fn write_header(kind: u32, len: usize, out: &mut [u8]) {
    out[..HEADER_LEN].copy_from_slice(&(kind << 1 | (len as u32) << 3).to_le_bytes()[..HEADER_LEN]);
}

/// Returns the length in bytes of the number of sequences.
fn count_len(count: usize) -> usize {
    match count {
        0..128 => 1,
        128..0x7F00 => 2,
        _ => 3,
    }
}

impl CodeTable {
    /// Returns the best coding of codes with these counts, and the bits that it takes.
    fn new(counts: &[u32], predefined: &Distribution, log_max: u32) -> (CodeTable, u64) {
        let (mut kind, mut costs) = (PREDEFINED, [0; 53]);
        let (mut description, mut description_len) = ([0; 64], 0);
        predefined.costs(&mut costs);
        let mut bits = bits_of(counts, &costs);
        let mut used = counts.iter().enumerate().filter(|(_, n)| **n > 0);
        let (first, second) = (used.next(), used.next());
        let table = match (first, second) {
            (None, _) => predefined.table(),
            (Some((code, _)), None) if bits > 8 => {
                (kind, description[0], description_len) = (CONSTANT, code as u8, 1);
                costs.fill(IMPOSSIBLE);
                costs[code] = 0;
                bits = 8;
                Table::constant(code as u8)
            }
            (Some(_), None) => predefined.table(),
            (Some(_), Some(_)) => {
                let own = Distribution::of(counts, log_max);
                let mut own_costs = [0; 53];
                own.costs(&mut own_costs);
                let mut writer = BitWriter::new(&mut description);
                own.write(&mut writer);
                let len = writer.finish();
                let own_bits = bits_of(counts, &own_costs) + 8 * len as u64;
                if own_bits < bits {
                    (kind, costs, description_len, bits) = (DESCRIBED, own_costs, len, own_bits);
                    own.table()
                } else {
                    predefined.table()
                }
            }
        };
        (CodeTable { kind, costs, description, description_len, table }, bits)
    }
}

fn bits_of(counts: &[u32], costs: &[u32]) -> u64 {
    counts.iter().zip(costs).map(|(&n, &cost)| u64::from(n) * u64::from(cost)).sum::<u64>() >> COST_BITS
}
