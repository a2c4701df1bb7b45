//! Parsing of text into tokens.
//!
//! The plain algorithm: at each position take the longest match, or else a literal. A lazy parse
//! also takes the literal if a better match begins at the next position, or at the one after it.

use super::matches::{Effort, MARGIN, Match, Matcher};
use super::symbols::{Histogram, MATCH_MIN, Token};

/// Parameters of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    strategy: Strategy,
    effort: Effort,
    /// Length below which a match is only taken after a search for a better one after its start.
    lazy_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// Greedy, without matches of 3 bytes.
    Fast,
    Greedy,
    /// Looks one position ahead.
    Lazy,
    /// Looks two positions ahead.
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
    /// Returns the parameters of level `number`; `None` if this encoder does not have that level.
    pub(super) fn new(number: i32) -> Option<Level> {
        LEVELS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// Tokens, and the counts of their symbols.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) all: Vec<Token>,
    /// Counts of the tokens since it was last cleared.
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

/// End of a parse: the first token that reaches one of both limits.
#[derive(Clone, Copy)]
pub(super) struct Stop {
    /// Position in the text.
    pub(super) at: usize,
    /// Number of tokens.
    pub(super) tokens: usize,
}

/// A level, and the matcher with the text seen so far.
pub(super) struct Parser {
    level: Level,
    matcher: Matcher,
}

/// Match that is taken.
struct TakenMatch {
    at: usize,
    found: Match,
    /// Position up to which the matcher has entered the text.
    entered: usize,
}

impl Parser {
    pub(super) fn new(level: Level, window_len: usize) -> Self {
        Self { level, matcher: Matcher::new(window_len) }
    }

    /// Begins another text, of which about `expected` bytes will be parsed.
    pub(super) fn start(&mut self, expected: usize) {
        self.matcher.start(expected);
    }

    /// Parses `input` from `at` on, and returns the end of the last token.
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

    /// Parses with matches of 3 bytes if `SHORT`, and looks `AHEAD` positions ahead.
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
                0 => TakenMatch { at, found, entered: at + 1 },
                _ => self.look_ahead::<SHORT, AHEAD>(input, at, found, tokens),
            };
            tokens.matched(taken.found);
            at = taken.at + taken.found.len;
            self.matcher.insert::<SHORT>(input, taken.entered, at);
        }
        at
    }

    /// Chooses `found` at `at`, or the first of the later matches that no better one follows. The
    /// text in front of the chosen match becomes literals.
    #[inline(always)]
    fn look_ahead<const SHORT: bool, const AHEAD: usize>(
        &mut self,
        input: &[u8],
        mut at: usize,
        mut found: Match,
        tokens: &mut Tokens,
    ) -> TakenMatch {
        let Level { effort, lazy_len, .. } = self.level;
        // A better match is rare: half of the effort finds nearly all of them.
        let effort_1 = Effort { depth: effort.depth / 2, ..effort };
        let effort_2 = Effort { depth: effort.depth / 4, ..effort };
        loop {
            if found.len >= lazy_len || at + 1 >= search_end(input) {
                return TakenMatch { at, found, entered: at + 1 };
            }
            let next = self.matcher.find::<SHORT>(input, at + 1, found.len - 1, effort_1);
            if is_better(next, found, 1) {
                tokens.literal(input[at]);
                at += 1;
                found = next;
                continue;
            }
            if AHEAD < 2 || at + 2 >= search_end(input) {
                return TakenMatch { at, found, entered: at + 2 };
            }
            let next = self.matcher.find::<SHORT>(input, at + 2, found.len - 1, effort_2);
            if !is_better(next, found, 2) {
                return TakenMatch { at, found, entered: at + 3 };
            }
            tokens.literal(input[at]);
            tokens.literal(input[at + 1]);
            at += 2;
            found = next;
        }
    }
}

/// Returns the position before which matches are searched for.
#[inline(always)]
fn search_end(input: &[u8]) -> usize {
    input.len().saturating_sub(MARGIN - 1)
}

/// Returns true if a match is better than literals. One of 3 bytes is only if its distance has few
/// bits, and even fewer if it could hide a longer match after it (greedy, 3 bytes up to 8 KiB: 0.3
/// to 0.5 % of ratio).
#[inline(always)]
fn is_worthwhile(found: Match, ahead: usize) -> bool {
    let reach = if ahead == 0 { 1 << 10 } else { 4 << 10 };
    found.len > MATCH_MIN || found.len == MATCH_MIN && found.dist <= reach
}

/// Returns true if `next` is worth the literals in front of it. One more byte outweighs four bits
/// of distance.
#[inline(always)]
fn is_better(next: Match, found: Match, literals: i32) -> bool {
    if next.len == 0 {
        return false;
    }
    let len_gain = next.len as i32 - found.len as i32;
    let dist_gain = found.dist.ilog2() as i32 - next.dist.ilog2() as i32;
    4 * len_gain + dist_gain > 4 * literals - 2
}
