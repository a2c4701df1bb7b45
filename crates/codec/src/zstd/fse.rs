//! Finite state entropy coding: RFC 8878, section 4.1.
//!
//! A symbol takes part of a bit: the state of the coder carries what is left. A table of `2^log` states gives each
//! symbol a number of states in proportion to its count; the bits that a symbol takes are about `log` less the binary
//! logarithm of that number.

use crate::bits::BitWriter;
use crate::entropy::log2;

/// Tables have at least `2^5` states.
const LOG_MIN: u32 = 5;
/// No alphabet here wants more.
pub(super) const LOG_MAX: u32 = 9;
/// The most symbols of an alphabet.
const SYMBOLS_MAX: usize = 53;
/// Bits behind the point of a cost.
pub(super) const COST_BITS: u32 = 8;
/// What no symbol costs.
pub(super) const IMPOSSIBLE: u32 = 1 << 24;

/// How many of `2^log` states each symbol has.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    log: u32,
    /// -1 for one state whose symbol is rarer than that; 0 for none.
    states: [i16; SYMBOLS_MAX],
    /// One more than the highest symbol that has a state.
    symbols: usize,
}

impl Distribution {
    /// One of the format's own distributions.
    pub(super) const fn predefined(log: u32, states: &[i8]) -> Distribution {
        let mut all = [0; SYMBOLS_MAX];
        let mut i = 0;
        while i < states.len() {
            all[i] = states[i] as i16;
            i += 1;
        }
        Distribution { log, states: all, symbols: states.len() }
    }

    /// The best one, nearly, for symbols that come up `counts` times, with at most `2^log_max` states. At least two symbols
    /// must come up.
    pub(super) fn of(counts: &[u32], log_max: u32) -> Distribution {
        let total: u32 = counts.iter().sum();
        let symbols = counts.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
        debug_assert!(symbols > 1 && counts.iter().filter(|&&n| n > 0).count() > 1);
        // More states than symbols to code are a waste of header.
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
        // Where the next state costs, or gains, least: bits change by about count / states.
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
            let Some((_, states)) = most else { unreachable!("symbols come up") };
            *states += 1;
            rest -= 1;
        }
        distribution
    }

    /// Bits of each symbol, times `2^COST_BITS`.
    pub(super) fn costs(&self, costs: &mut [u32]) {
        costs.fill(IMPOSSIBLE);
        for (cost, &states) in costs.iter_mut().zip(&self.states[..self.symbols]).filter(|(_, states)| **states != 0) {
            *cost = (self.log << COST_BITS) - (log2(states.unsigned_abs().into()) >> 8);
        }
    }

    /// Write the description: section 4.1.1.
    pub(super) fn write(&self, out: &mut BitWriter<'_>) {
        out.put(u64::from(self.log - LOG_MIN), 4);
        // One more than the states that are still to be given: values up to this one are possible.
        let mut rest = (1u32 << self.log) + 1;
        let mut symbol = 0;
        while symbol < self.symbols && rest > 1 {
            let states = self.states[symbol];
            let value = (states + 1) as u32;
            let bits = rest.ilog2() + 1;
            let short = (1 << bits) - 1 - rest; // so many values take one bit less
            let half = 1 << (bits - 1);
            match value {
                _ if value < short => out.put(value.into(), bits - 1),
                _ if value < half => out.put(value.into(), bits),
                _ => out.put((value + short).into(), bits),
            }
            rest -= u32::from(states.unsigned_abs());
            symbol += 1;
            if states == 0 {
                // How many more have none, in digits of 0 to 3; 3 says that a digit follows.
                let zeros = self.states[symbol..self.symbols].iter().take_while(|states| **states == 0).count();
                (0..zeros / 3).for_each(|_| out.put(3, 2));
                out.put(zeros as u64 % 3, 2);
                symbol += zeros;
            }
        }
        debug_assert_eq!(rest, 1);
        out.align();
    }

    /// The table to code with.
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
        let mut table = Table { log: self.log, states: [0; 1 << LOG_MAX], symbols: [Symbol::default(); SYMBOLS_MAX] };
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

/// A table to code with.
pub(super) struct Table {
    log: u32,
    /// The states of each symbol in ascending order, symbol by symbol; a state counts from `2^log` on.
    states: [u16; 1 << LOG_MAX],
    symbols: [Symbol; SYMBOLS_MAX],
}

/// How a symbol changes the state.
#[derive(Clone, Copy, Default)]
struct Symbol {
    /// Bits of the old state that are written: the upper half of this and the state added.
    bits: u32,
    /// Added to what is left of the state: the place of the new one.
    place: i32,
}

impl Symbol {
    fn new(log: u32, states: u32, first: u32) -> Symbol {
        if states == 0 {
            return Symbol::default();
        }
        // From `states << bits` on a state writes all these bits, below one less: what is left has `states` values.
        let bits = if states == 1 { log } else { log - (states - 1).ilog2() };
        Symbol { bits: (bits << 16).wrapping_sub(states << bits), place: first as i32 - states as i32 }
    }
}

impl Table {
    /// A table of one state: a symbol that takes no bits.
    pub(super) fn constant(symbol: u8) -> Table {
        let mut table = Table { log: 0, states: [0; 1 << LOG_MAX], symbols: [Symbol::default(); SYMBOLS_MAX] };
        table.states[0] = 1;
        table.symbols[usize::from(symbol)] = Symbol { bits: 0u32.wrapping_sub(1), place: -1 };
        table
    }

    /// The state before the last symbol, which takes no bits.
    #[inline]
    pub(super) fn start(&self, symbol: u8) -> State {
        let Symbol { bits, place } = self.symbols[usize::from(symbol)];
        let count = bits.wrapping_add(1 << 15) >> 16;
        let value = (count << 16).wrapping_sub(bits);
        State(self.states[((value >> count) as i32 + place) as usize % (1 << LOG_MAX)])
    }

    /// Code a symbol: the bits to write and their count.
    #[inline]
    pub(super) fn code(&self, state: &mut State, symbol: u8) -> (u64, u32) {
        let Symbol { bits, place } = self.symbols[usize::from(symbol) % SYMBOLS_MAX];
        let old = u32::from(state.0);
        let count = old.wrapping_add(bits) >> 16;
        state.0 = self.states[((old >> count) as i32 + place) as usize % (1 << LOG_MAX)];
        (u64::from(old & ((1 << count) - 1)), count)
    }

    /// The state after the first symbol, from which decoding starts.
    pub(super) fn finish(&self, state: State, out: &mut BitWriter<'_>) {
        out.put(u64::from(state.0) & ((1 << self.log) - 1), self.log);
    }
}

/// Where a coder is.
#[derive(Clone, Copy)]
pub(super) struct State(u16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_counts() -> impl Strategy<Value = Vec<u32>> {
        let count = prop_oneof![Just(0), 1..4u32, (0..17u32, 0..100u32).prop_map(|(log, n)| (1 << log) + n)];
        prop::collection::vec(count, 2..=SYMBOLS_MAX)
            .prop_filter("two symbols", |counts| counts.iter().filter(|&&n| n > 0).count() > 1)
    }

    /// Bits by their own number of states, without the coder: what the symbols should take.
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
            // No state would do better elsewhere.
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

        /// The coder's bits are those that the costs say, nearly.
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
