//! Text to tokens.
//!
//! The plain algorithm: at each position take the longest match, or else a literal. A lazy parse takes the literal as
//! well where a better match begins at the next position, or at the one after it.

use super::matches::{Effort, MARGIN, Match, Matcher};
use super::symbols::{Histogram, MATCH_MIN, Token};

/// How a level parses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    strategy: Strategy,
    effort: Effort,
    /// Shorter matches are not taken before something better was looked for behind them.
    lazy_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// Greedy, and no matches of 3 bytes.
    Fast,
    Greedy,
    /// Look one position ahead.
    Lazy,
    /// Look two positions ahead.
    Lazier,
}

/// Levels 1 to 9, each with about the ratio of the same level of libdeflate.
const LEVELS: [Level; 9] = [
    level(Strategy::Fast, 2, 16, 0),
    level(Strategy::Greedy, 4, 24, 0),
    level(Strategy::Greedy, 8, 24, 0),
    level(Strategy::Greedy, 14, 32, 0),
    level(Strategy::Lazy, 12, 32, 16),
    level(Strategy::Lazy, 24, 64, 32),
    level(Strategy::Lazier, 40, 64, 64),
    level(Strategy::Lazier, 100, 128, 128),
    level(Strategy::Lazier, 200, 258, 258),
];

const fn level(strategy: Strategy, depth: u32, nice_len: usize, lazy_len: usize) -> Level {
    Level { strategy, effort: Effort { depth, nice_len }, lazy_len }
}

impl Level {
    /// The parameters of level `number`, if we have such a level.
    pub(super) fn new(number: i32) -> Option<Level> {
        LEVELS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// Tokens, and how often their symbols come up.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) all: Vec<Token>,
    /// Of the tokens since it was last cleared.
    pub(super) recent: Histogram,
}

impl Tokens {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.recent = Histogram::EMPTY;
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        self.all.push(Token::literal(byte));
        self.recent.add_literal(byte);
    }

    #[inline(always)]
    fn matched(&mut self, found: Match) {
        let token = Token::of_match(found.len, found.dist);
        self.all.push(token);
        self.recent.add_match(token);
    }
}

/// Where parsing may stop: at the first token that reaches one of both.
#[derive(Clone, Copy)]
pub(super) struct Stop {
    /// A position in the text.
    pub(super) at: usize,
    /// A count of tokens.
    pub(super) tokens: usize,
}

/// Parse `input` from `at` on, and return where the last token ends.
pub(super) fn parse(
    level: &Level,
    matcher: &mut Matcher,
    input: &[u8],
    at: usize,
    stop: Stop,
    tokens: &mut Tokens,
) -> usize {
    let parse = match level.strategy {
        Strategy::Fast => parse_with::<false, 0>,
        Strategy::Greedy => parse_with::<true, 0>,
        Strategy::Lazy => parse_with::<true, 1>,
        Strategy::Lazier => parse_with::<true, 2>,
    };
    let mut at = parse(level, matcher, input, at, stop, tokens);
    if at + MARGIN > input.len() {
        while at < stop.at.min(input.len()) && tokens.all.len() < stop.tokens {
            tokens.literal(input[at]);
            at += 1;
        }
    }
    at
}

/// `SHORT`: matches of 3 bytes as well. `AHEAD`: how many positions to look ahead.
fn parse_with<const SHORT: bool, const AHEAD: usize>(
    level: &Level,
    matcher: &mut Matcher,
    input: &[u8],
    mut at: usize,
    stop: Stop,
    tokens: &mut Tokens,
) -> usize {
    let search_end = input.len().saturating_sub(MARGIN - 1);
    while at < stop.at.min(search_end) && tokens.all.len() < stop.tokens {
        matcher.sweep(at);
        let found = matcher.find::<SHORT>(input, at, 0, level.effort);
        if !is_worthwhile(found, AHEAD) {
            tokens.literal(input[at]);
            at += 1;
            continue;
        }
        at = match AHEAD {
            0 => take::<SHORT>(matcher, input, at, at + 1, found, tokens),
            _ => take_lazily::<SHORT, AHEAD>(level, matcher, input, at, search_end, found, tokens),
        };
    }
    at
}

/// Take `found`, or the first of the matches behind it that nothing still better follows.
#[inline(always)]
fn take_lazily<const SHORT: bool, const AHEAD: usize>(
    level: &Level,
    matcher: &mut Matcher,
    input: &[u8],
    mut at: usize,
    search_end: usize,
    mut found: Match,
    tokens: &mut Tokens,
) -> usize {
    // What is better than what we have is rare: half of the effort finds nearly all of it.
    let effort_1 = Effort { depth: level.effort.depth / 2, ..level.effort };
    let effort_2 = Effort { depth: level.effort.depth / 4, ..level.effort };
    loop {
        if found.len >= level.lazy_len || at + 1 >= search_end {
            return take::<SHORT>(matcher, input, at, at + 1, found, tokens);
        }
        let next = matcher.find::<SHORT>(input, at + 1, found.len - 1, effort_1);
        if is_better(next, found, 1) {
            tokens.literal(input[at]);
            at += 1;
            found = next;
            continue;
        }
        if AHEAD < 2 || at + 2 >= search_end {
            return take::<SHORT>(matcher, input, at, at + 2, found, tokens);
        }
        let next = matcher.find::<SHORT>(input, at + 2, found.len - 1, effort_2);
        if !is_better(next, found, 2) {
            return take::<SHORT>(matcher, input, at, at + 3, found, tokens);
        }
        tokens.literal(input[at]);
        tokens.literal(input[at + 1]);
        at += 2;
        found = next;
    }
}

/// Take the match at `at`, where positions up to `entered` are known to the matcher.
#[inline(always)]
fn take<const SHORT: bool>(
    matcher: &mut Matcher,
    input: &[u8],
    at: usize,
    entered: usize,
    found: Match,
    tokens: &mut Tokens,
) -> usize {
    tokens.matched(found);
    let end = at + found.len;
    matcher.insert::<SHORT>(input, entered, end);
    end
}

/// Whether a match is better than literals. Of 3 bytes only where its distance has few bits, and all the more so where
/// it would hide a longer match behind it (greedy, 3 bytes up to 8 KiB: 0.3 to 0.5 % of ratio).
#[inline(always)]
fn is_worthwhile(found: Match, ahead: usize) -> bool {
    let reach = if ahead == 0 { 1 << 10 } else { 4 << 10 };
    found.len > MATCH_MIN || found.len == MATCH_MIN && found.dist <= reach
}

/// Whether `next` is worth the literals in front of it. A byte more outweighs four bits of distance.
#[inline(always)]
fn is_better(next: Match, found: Match, literals: i32) -> bool {
    if next.len == 0 {
        return false;
    }
    let len_gain = next.len as i32 - found.len as i32;
    let dist_gain = found.dist.ilog2() as i32 - next.dist.ilog2() as i32;
    4 * len_gain + dist_gain > 4 * literals - 2
}
