//! Finite state entropy coding: RFC 8878, section 4.1.
//!
//! A symbol can take a fraction of a bit: the state of the coder carries the rest. A table of
//! `2^log` states gives each symbol a number of states in proportion to its count. The bits of a
//! symbol are about `log` minus the binary logarithm of that number.

use super::codes::CODES_LEN;
use crate::bits::BitWriter;
use crate::entropy::{FRACTION_BITS, log2};

/// Log of the smallest table: `2^5` states.
const LOG_MIN: u32 = 5;
/// Log of the largest table that an alphabet here needs.
pub(super) const LOG_MAX: u32 = 9;
/// Largest number of symbols in an alphabet.
const SYMBOLS_MAX: usize = 53;
/// Number of bits after the binary point of a cost.
pub(super) const COST_BITS: u32 = 8;
/// Cost of a symbol that has no code. No real cost is as high.
pub(super) const IMPOSSIBLE: u32 = 1 << 24;

/// Binary logarithms of numbers of states, times `2^COST_BITS`.
static LOG2: [u16; (1 << LOG_MAX) + 1] = {
    let mut logs = [0; (1 << LOG_MAX) + 1];
    let mut n = 1;
    while n < logs.len() {
        logs[n] = (log2(n as u32) >> (FRACTION_BITS - COST_BITS)) as u16;
        n += 1;
    }
    logs
};

/// Number of states of each symbol, out of `2^log`.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    log: u32,
    /// -1 means one state for a symbol that is rarer than that; 0 means none.
    states: [i16; SYMBOLS_MAX],
    /// Highest symbol with a state, plus one.
    symbols: usize,
}

impl Distribution {
    /// Returns one of the format's predefined distributions.
    pub(super) const fn predefined(log: u32, states: &[i8]) -> Distribution {
        let mut all = [0; SYMBOLS_MAX];
        let mut i = 0;
        while i < states.len() {
            all[i] = states[i] as i16;
            i += 1;
        }
        Distribution { log, states: all, symbols: states.len() }
    }

    /// Returns a nearly optimal distribution for symbols with these counts, with at most
    /// `2^log_max` states. At least two symbols must occur.
    pub(super) fn of(counts: &[u32], log_max: u32) -> Distribution {
        let total: u32 = counts.iter().sum();
        let symbols = counts.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
        debug_assert!(symbols > 1 && counts.iter().filter(|&&n| n > 0).count() > 1);
        // More states than symbols to code would be a waste of header.
        let log = (total - 1).ilog2().saturating_sub(2).min(log_max);
        let needed = (total.ilog2() + 1).min((symbols as u32 - 1).ilog2() + 2);
        let log = log.max(needed).clamp(LOG_MIN, log_max);
        let mut distribution = Distribution { log, states: [0; SYMBOLS_MAX], symbols };
        let size = 1i32 << log;
        let mut rest = size;
        for (states, &n) in distribution.states.iter_mut().zip(counts).filter(|(_, n)| **n > 0) {
            let share = ((u64::from(n) << log) + u64::from(total) / 2) / u64::from(total);
            *states = (share as i16).max(1);
            rest -= i32::from(*states);
        }
        // Gain or loss of one state more or less: the bits change by about count / states.
        let worth = |(states, n): (&mut i16, &u32), by: i16| u64::from(*n) * 4096 / (2 * *states + by) as u64;
        while rest < 0 {
            let states = distribution.states.iter_mut().zip(counts).filter(|(states, _)| **states > 1);
            let least = states.map(|(s, n)| (worth((s, n), -1), s)).min_by_key(|(worth, _)| *worth);
            let Some((_, states)) = least else { unreachable!("there are more states than symbols") };
            *states -= 1;
            rest += 1;
        }
        while rest > 0 {
            let states = distribution.states.iter_mut().zip(counts).filter(|(states, _)| **states > 0);
            let most = states.map(|(s, n)| (worth((s, n), 1), s)).max_by_key(|(worth, _)| *worth);
            let Some((_, states)) = most else { unreachable!("some symbol occurs") };
            *states += 1;
            rest -= 1;
        }
        distribution
    }

    /// Computes the bits of each symbol, times `2^COST_BITS`.
    pub(super) fn costs(&self, costs: &mut [u32]) {
        costs.fill(IMPOSSIBLE);
        for (cost, &states) in costs.iter_mut().zip(&self.states[..self.symbols]).filter(|(_, states)| **states != 0) {
            *cost = (self.log << COST_BITS) - u32::from(LOG2[usize::from(states.unsigned_abs())]);
        }
    }

    /// Writes the description: section 4.1.1.
    pub(super) fn write(&self, out: &mut BitWriter<'_>) {
        out.put(u64::from(self.log - LOG_MIN), 4);
        // One more than the number of states that are still to be assigned: values up to this one
        // are possible.
        let mut rest = (1u32 << self.log) + 1;
        let mut symbol = 0;
        while symbol < self.symbols && rest > 1 {
            let states = self.states[symbol];
            let value = (states + 1) as u32;
            let bits = rest.ilog2() + 1;
            let short = (1 << bits) - 1 - rest; // number of values that take one bit less
            let half = 1 << (bits - 1);
            match value {
                _ if value < short => out.put(value.into(), bits - 1),
                _ if value < half => out.put(value.into(), bits),
                _ => out.put((value + short).into(), bits),
            }
            rest -= u32::from(states.unsigned_abs());
            symbol += 1;
            if states == 0 {
                // The number of further symbols without states, in digits of 0 to 3; 3 means that a
                // digit follows.
                let zeros = self.states[symbol..self.symbols].iter().take_while(|states| **states == 0).count();
                (0..zeros / 3).for_each(|_| out.put(3, 2));
                out.put(zeros as u64 % 3, 2);
                symbol += zeros;
            }
        }
        debug_assert_eq!(rest, 1);
        out.align();
    }

    /// Returns the coding table.
    pub(super) fn table(&self) -> Table {
        let size = 1usize << self.log;
        let mut spread = [0u8; 1 << LOG_MAX];
        let mut top = size;
        for (symbol, _) in (0..).zip(&self.states[..self.symbols]).filter(|(_, states)| **states == -1) {
            top -= 1;
            spread[top] = symbol;
        }
        let (step, mut at) = ((size >> 1) + (size >> 3) + 3, 0);
        for (symbol, &states) in (0..).zip(&self.states[..self.symbols]) {
            for _ in 0..states.max(0) {
                spread[at] = symbol;
                at = (at + step) % size;
                while at >= top {
                    at = (at + step) % size;
                }
            }
        }
        let mut table = Table { log: self.log, states: [0; 1 << LOG_MAX], symbols: [Symbol::default(); CODES_LEN] };
        let mut next = [0; SYMBOLS_MAX];
        let mut first = 0;
        for (symbol, states) in
            self.states[..self.symbols].iter().map(|states| states.unsigned_abs().into()).enumerate()
        {
            table.symbols[symbol] = Symbol::new(self.log, states, first);
            next[symbol] = first as usize;
            first += states;
        }
        for (state, &symbol) in spread[..size].iter().enumerate() {
            let next = &mut next[usize::from(symbol)];
            table.states[*next] = (size + state) as u16;
            *next += 1;
        }
        table
    }
}

/// Coding table.
pub(super) struct Table {
    log: u32,
    /// States of each symbol in ascending order, symbol by symbol. A state counts from `2^log` on.
    states: [u16; 1 << LOG_MAX],
    symbols: [Symbol; CODES_LEN],
}

/// Change of the state by a symbol.
#[derive(Clone, Copy, Default)]
struct Symbol {
    /// Number of bits of the old state to write: the upper half of the sum of this and the state.
    bits: u32,
    /// Addend for the rest of the state, which gives the index of the new one.
    index: i32,
}

impl Symbol {
    fn new(log: u32, states: u32, first: u32) -> Symbol {
        if states == 0 {
            return Symbol::default();
        }
        // A state from `states << bits` on writes all these bits, a lower one writes one less: the
        // rest has `states` values.
        let bits = if states == 1 { log } else { log - (states - 1).ilog2() };
        Symbol { bits: (bits << 16).wrapping_sub(states << bits), index: first as i32 - states as i32 }
    }
}

impl Table {
    /// Returns a table of one state, for a symbol that takes no bits.
    pub(super) fn constant(symbol: u8) -> Table {
        let mut table = Table { log: 0, states: [0; 1 << LOG_MAX], symbols: [Symbol::default(); CODES_LEN] };
        table.states[0] = 1;
        table.symbols[usize::from(symbol)] = Symbol { bits: 0u32.wrapping_sub(1), index: -1 };
        table
    }

    /// Returns the state before the last symbol, which takes no bits.
    #[inline]
    pub(super) fn start(&self, symbol: u8) -> FseState {
        let Symbol { bits, index } = self.symbols[usize::from(symbol)];
        let count = bits.wrapping_add(1 << 15) >> 16;
        let value = (count << 16).wrapping_sub(bits);
        FseState(self.states[((value >> count) as i32 + index) as usize % (1 << LOG_MAX)].into())
    }

    /// Codes a symbol. Returns the bits to write and their number.
    #[inline(always)]
    pub(super) fn code(&self, state: &mut FseState, symbol: u8) -> (u64, u32) {
        let Symbol { bits, index } = self.symbols[usize::from(symbol) % CODES_LEN];
        let FseState(old) = *state;
        let count = old.wrapping_add(bits) >> 16;
        state.0 = self.states[((old >> count) as i32 + index) as usize % (1 << LOG_MAX)].into();
        (u64::from(old) & ((1 << count) - 1), count)
    }

    /// Writes the state after the first symbol, from which decoding starts.
    pub(super) fn finish(&self, state: FseState, out: &mut BitWriter<'_>) {
        out.put(u64::from(state.0) & ((1 << self.log) - 1), self.log);
    }
}

/// State of a coder.
#[derive(Clone, Copy)]
pub(super) struct FseState(u32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_counts() -> impl Strategy<Value = Vec<u32>> {
        let count = prop_oneof![Just(0), 1..4u32, (0..17u32, 0..100u32).prop_map(|(log, n)| (1 << log) + n)];
        prop::collection::vec(count, 2..=SYMBOLS_MAX)
            .prop_filter("two symbols", |counts| counts.iter().filter(|&&n| n > 0).count() > 1)
    }

    /// Returns the bits of the symbols by their number of states, without the coder.
    fn bits(counts: &[u32], distribution: &Distribution) -> f64 {
        let size = f64::from(1u32 << distribution.log);
        let bits = |(&n, &states): (&u32, &i16)| match n {
            0 => 0.0,
            n => f64::from(n) * (size / f64::from(states)).log2(),
        };
        counts.iter().zip(&distribution.states).map(bits).sum()
    }

    proptest! {
        #[test]
        fn every_symbol_has_its_share_of_states(counts in any_counts()) {
            let distribution = Distribution::of(&counts, LOG_MAX);
            let states = &distribution.states[..counts.len()];
            prop_assert_eq!(states.iter().map(|&n| i32::from(n)).sum::<i32>(), 1 << distribution.log);
            prop_assert!(counts.iter().zip(states).all(|(&count, &states)| (count > 0) == (states > 0)));
            // No state would do better at another symbol.
            let best = bits(&counts, &distribution);
            for from in (0..counts.len()).filter(|&i| states[i] > 1) {
                for to in (0..counts.len()).filter(|&i| counts[i] > 0 && i != from) {
                    let mut other = distribution.clone();
                    other.states[from] -= 1;
                    other.states[to] += 1;
                    prop_assert!(bits(&counts, &other) > best * 0.995 - 1.0, "one of {from} to {to}");
                }
            }
        }

        /// The coder's output is nearly as long as the costs say.
        #[test]
        fn symbols_take_what_they_cost(counts in any_counts()) {
            let distribution = Distribution::of(&counts, LOG_MAX);
            let mut costs = [0; SYMBOLS_MAX];
            distribution.costs(&mut costs);
            let table = distribution.table();
            let symbols = || (0..).zip(&counts).flat_map(|(symbol, &n)| std::iter::repeat_n(symbol, n.min(50) as usize));
            let (mut state, mut taken, mut cost) = (table.start(symbols().next().unwrap()), 0, 0);
            for symbol in symbols().skip(1) {
                taken += table.code(&mut state, symbol).1;
                cost += costs[usize::from(symbol)];
            }
            let cost = f64::from(cost) / f64::from(1 << COST_BITS);
            prop_assert!((f64::from(taken) - cost).abs() < 10.0 + cost * 0.1, "{taken} bits for {cost}");
        }
    }

    #[test]
    fn one_state_takes_all_bits() {
        let table = Distribution::predefined(5, &[31, -1]).table();
        let mut state = table.start(0);
        let (_, bits) = table.code(&mut state, 1);
        assert_eq!(bits, 5);
    }
}
