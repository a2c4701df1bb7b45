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

/// A level, and what it has seen of a text.
pub(super) struct Parser {
    level: Level,
    matcher: Matcher,
}

/// A match that is taken.
struct Taken {
    at: usize,
    found: Match,
    /// Positions up to here are known to the matcher.
    entered: usize,
}

impl Parser {
    pub(super) fn new(level: Level, window_len: usize) -> Self {
        Self { level, matcher: Matcher::new(window_len) }
    }

    /// Begin with another text, of which about `expected` bytes will be parsed.
    pub(super) fn start(&mut self, expected: usize) {
        self.matcher.start(expected);
    }

    /// Parse `input` from `at` on, and return where the last token ends.
    pub(super) fn parse(&mut self, input: &[u8], at: usize, stop: Stop, tokens: &mut Tokens) -> usize {
        let parse = match self.level.strategy {
            Strategy::Fast => Self::parse_with::<false, 0>,
            Strategy::Greedy => Self::parse_with::<true, 0>,
            Strategy::Lazy => Self::parse_with::<true, 1>,
            Strategy::Lazier => Self::parse_with::<true, 2>,
        };
        let mut at = parse(self, input, at, stop, tokens);
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
        &mut self,
        input: &[u8],
        mut at: usize,
        stop: Stop,
        tokens: &mut Tokens,
    ) -> usize {
        let effort = self.level.effort;
        while at < stop.at.min(search_end(input)) && tokens.all.len() < stop.tokens {
            self.matcher.sweep(at);
            let found = self.matcher.find::<SHORT>(input, at, 0, effort);
            if !is_worthwhile(found, AHEAD) {
                tokens.literal(input[at]);
                at += 1;
                continue;
            }
            let taken = match AHEAD {
                0 => Taken { at, found, entered: at + 1 },
                _ => self.look_ahead::<SHORT, AHEAD>(input, at, found, tokens),
            };
            tokens.matched(taken.found);
            at = taken.at + taken.found.len;
            self.matcher.insert::<SHORT>(input, taken.entered, at);
        }
        at
    }

    /// Choose `found` at `at`, or the first of the matches behind it that nothing still better follows. What is in front of the
    /// chosen one becomes literals.
    #[inline(always)]
    fn look_ahead<const SHORT: bool, const AHEAD: usize>(
        &mut self,
        input: &[u8],
        mut at: usize,
        mut found: Match,
        tokens: &mut Tokens,
    ) -> Taken {
        let Level { effort, lazy_len, .. } = self.level;
        // What is better than what we have is rare: half of the effort finds nearly all of it.
        let effort_1 = Effort { depth: effort.depth / 2, ..effort };
        let effort_2 = Effort { depth: effort.depth / 4, ..effort };
        loop {
            if found.len >= lazy_len || at + 1 >= search_end(input) {
                return Taken { at, found, entered: at + 1 };
            }
            let next = self.matcher.find::<SHORT>(input, at + 1, found.len - 1, effort_1);
            if is_better(next, found, 1) {
                tokens.literal(input[at]);
                at += 1;
                found = next;
                continue;
            }
            if AHEAD < 2 || at + 2 >= search_end(input) {
                return Taken { at, found, entered: at + 2 };
            }
            let next = self.matcher.find::<SHORT>(input, at + 2, found.len - 1, effort_2);
            if !is_better(next, found, 2) {
                return Taken { at, found, entered: at + 3 };
            }
            tokens.literal(input[at]);
            tokens.literal(input[at + 1]);
            at += 2;
            found = next;
        }
    }
}

/// Matches are searched for in front of this position.
#[inline(always)]
fn search_end(input: &[u8]) -> usize {
    input.len().saturating_sub(MARGIN - 1)
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
