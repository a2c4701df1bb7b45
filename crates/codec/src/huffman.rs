//! Prefix codes of limited length.

/// Largest number of symbols in an alphabet: DEFLATE's literals and lengths.
const SYMBOLS_MAX: usize = 288;
/// Longest code in bits. Lengths are stored in 4 bits.
const LEN_MAX: usize = 15;
/// Number of bits below a symbol's count in one word, which hold the symbol, so that sorting sorts
/// both.
const SYMBOL_BITS: u32 = 9;

/// Computes the lengths of an optimal prefix code for symbols with these counts; 0 if the count is
/// 0.
///
/// At least two symbols get a code, whatever the counts: some decoders reject codes with one.
/// Lengths above `len_max` are cut, and others grow in return: not quite optimal, but such lengths
/// are rare.
pub(crate) fn code_lens(counts: &[u32], len_max: usize, lens: &mut [u8]) {
    debug_assert!(counts.len() == lens.len() && counts.len() <= SYMBOLS_MAX && len_max <= LEN_MAX);
    lens.fill(0);
    let mut nodes = [0u64; SYMBOLS_MAX];
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        nodes[used] = u64::from(count) << SYMBOL_BITS | symbol as u64;
        used += usize::from(count > 0);
    }
    if used < 2 {
        let first = if used == 1 { (nodes[0] & SYMBOL_MASK) as usize } else { 0 };
        (lens[first], lens[usize::from(first == 0)]) = (1, 1);
        return;
    }
    let nodes = &mut nodes[..used];
    nodes.sort_unstable();
    let mut symbols = [0u16; SYMBOLS_MAX];
    for (symbol, node) in symbols.iter_mut().zip(nodes.iter_mut()) {
        *symbol = (*node & SYMBOL_MASK) as u16;
        *node >>= SYMBOL_BITS;
    }
    let mut len_counts = leaves_by_depth(nodes, len_max);
    restore_kraft(&mut len_counts, len_max);
    // The rarest symbols get the longest codes.
    let mut symbols = symbols[..used].iter();
    for len in (1..=len_max).rev() {
        for &symbol in symbols.by_ref().take(len_counts[len] as usize) {
            lens[usize::from(symbol)] = len as u8;
        }
    }
}

const SYMBOL_MASK: u64 = (1 << SYMBOL_BITS) - 1;

/// Returns the number of leaves at each depth of Huffman's tree. Those below `len_max` are counted
/// there. `nodes` are the counts in ascending order; they are overwritten.
///
/// The algorithm works in place, after Moffat and Katajainen: inner nodes are created in ascending
/// order too, so that both queues fit in one array. An inner node is replaced by the index of its
/// parent once it has one.
fn leaves_by_depth(nodes: &mut [u64], len_max: usize) -> [u32; LEN_MAX + 1] {
    let inner_count = nodes.len() - 1;
    let (mut leaf, mut inner) = (0, 0);
    for next in 0..inner_count {
        let mut weight = 0;
        for _ in 0..2 {
            if leaf < nodes.len() && (inner == next || nodes[leaf] <= nodes[inner]) {
                weight += nodes[leaf];
                leaf += 1;
            } else {
                weight += nodes[inner];
                nodes[inner] = next as u64;
                inner += 1;
            }
        }
        nodes[next] = weight;
    }
    let mut len_counts = [0; LEN_MAX + 1];
    // From the root down: the nodes at a depth that are not inner nodes are leaves.
    nodes[inner_count - 1] = 0;
    let (mut depth, mut slots, mut rest) = (1, 2usize, inner_count - 1);
    let mut parents_depth = 0;
    while slots > 0 {
        let mut inner_here = 0;
        while rest > 0 && nodes[nodes[rest - 1] as usize] == parents_depth {
            rest -= 1;
            nodes[rest] = depth as u64;
            inner_here += 1;
        }
        len_counts[depth.min(len_max)] += (slots - inner_here) as u32;
        slots = 2 * inner_here;
        parents_depth = depth as u64;
        depth += 1;
    }
    len_counts
}

/// Makes room for the leaves that were cut at `len_max`: the sum of `2^-length` must be 1.
fn restore_kraft(len_counts: &mut [u32; LEN_MAX + 1], len_max: usize) {
    let units: u32 = (1..=len_max).map(|len| len_counts[len] << (len_max - len)).sum();
    // Each turn replaces a leaf by two that are one bit longer, one of which is taken from
    // `len_max`: one unit less.
    for _ in 1 << len_max..units {
        let Some(len) = (1..len_max).rev().find(|&len| len_counts[len] > 0) else { return };
        len_counts[len] -= 1;
        len_counts[len + 1] += 2;
        len_counts[len_max] -= 1;
    }
}

/// Returns the canonical codes of RFC 1951, section 3.2.2, for `lens`, reversed so that their bits
/// can be written lowest first.
pub(crate) fn codes(lens: &[u8]) -> impl Iterator<Item = u16> {
    let mut counts = [0u16; LEN_MAX + 1];
    for &len in lens {
        counts[usize::from(len)] += 1;
    }
    let mut next = [0u16; LEN_MAX + 1];
    for len in 2..=LEN_MAX {
        next[len] = (next[len - 1] + counts[len - 1]) << 1;
    }
    lens.iter().map(move |&len| {
        let code = next[usize::from(len)];
        next[usize::from(len)] = code.wrapping_add(1);
        if len == 0 { 0 } else { code.reverse_bits() >> (16 - len) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lens(counts: &[u32], len_max: usize) -> Vec<u8> {
        let mut lens = vec![9; counts.len()];
        code_lens(counts, len_max, &mut lens);
        lens
    }

    fn cost(counts: &[u32], lens: &[u8]) -> u64 {
        counts.iter().zip(lens).map(|(&count, &len)| u64::from(count) * u64::from(len)).sum()
    }

    /// Reference implementation: returns the cost of Huffman's own algorithm, without a limit.
    /// Every merge adds a bit to the merged symbols.
    fn naive_cost(counts: &[u32]) -> u64 {
        let mut weights: Vec<u64> = counts.iter().filter(|&&count| count > 0).map(|&count| count.into()).collect();
        let mut cost = 0;
        while weights.len() > 1 {
            weights.sort_unstable_by(|a, b| b.cmp(a));
            let merged = weights.pop().unwrap() + weights.pop().unwrap();
            cost += merged;
            weights.push(merged);
        }
        cost
    }

    fn is_complete(lens: &[u8]) -> bool {
        lens.iter().filter(|&&len| len > 0).map(|&len| 1u32 << (15 - len)).sum::<u32>() == 1 << 15
    }

    /// Generates counts over many magnitudes, so that some codes exceed the limit.
    fn any_counts(len_max: usize) -> impl Strategy<Value = Vec<u32>> {
        let count = prop_oneof![Just(0), 1..4u32, (0..26u32, 0..1000u32).prop_map(|(log, n)| (1 << log) + n)];
        prop::collection::vec(count, 2..=288.min(1 << len_max))
    }

    proptest! {
        #[test]
        fn lens_make_a_complete_code(counts in any_counts(15)) {
            let lens = lens(&counts, 15);
            prop_assert!(is_complete(&lens), "{lens:?}");
            prop_assert!(counts.iter().zip(&lens).all(|(&count, &len)| count == 0 || len > 0));
            let used = counts.iter().filter(|&&count| count > 0).count();
            prop_assert_eq!(lens.iter().filter(|&&len| len > 0).count(), used.max(2));
            let best = naive_cost(&counts);
            prop_assert!(used < 2 || cost(&counts, &lens) >= best);
            prop_assert!(used < 2 || lens.contains(&15) || cost(&counts, &lens) == best);
        }

        #[test]
        fn short_limits_hold(counts in any_counts(7)) {
            let lens = lens(&counts, 7);
            prop_assert!(lens.iter().all(|&len| len <= 7));
            prop_assert!(is_complete(&lens), "{lens:?}");
        }
    }

    #[test]
    fn fibonacci_counts_want_the_longest_codes() {
        let mut counts = vec![1, 1];
        while counts.len() < 30 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        for len_max in [5, 7, 15] {
            let lens = lens(&counts, len_max);
            assert!(is_complete(&lens), "{lens:?}");
            assert!(lens.iter().all(|&len| usize::from(len) <= len_max));
            assert!(lens.is_sorted_by(|a, b| a >= b));
        }
    }

    #[test]
    fn there_are_always_two_codes() {
        assert_eq!(lens(&[0, 0, 0], 15), [1, 1, 0]);
        assert_eq!(lens(&[7, 0, 0], 15), [1, 1, 0]);
        assert_eq!(lens(&[0, 0, 7], 15), [1, 0, 1]);
    }

    /// The example of RFC 1951, section 3.2.2; bits reversed here.
    #[test]
    fn codes_are_the_standards() {
        let lens = [3, 3, 3, 3, 3, 2, 4, 4];
        let want = [0b010, 0b011, 0b100, 0b101, 0b110, 0b00, 0b1110, 0b1111u16];
        let reversed = want.iter().zip(lens).map(|(code, len)| code.reverse_bits() >> (16 - len));
        assert!(codes(&lens).eq(reversed));
    }
}
