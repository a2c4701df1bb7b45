//! Command lines as getopt_long(3) reads them: short options joined to one another and to their values, long ones
//! abbreviated as long as they stay unique, options behind operands, only operands behind `--`.
//!
//! This is the grammar of the programs whose names kiln answers to; that of clap differs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The kind of value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
    /// A value is optional, and given only with `=`.
    Optional,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// The name of the option in [`Item::Option`]: the long form if it has one.
    name: &'static str,
    short: Option<u8>,
    has_long: bool,
    takes: Takes,
}

/// Declares `-c` and `--name`.
pub const fn both(short: char, name: &'static str, takes: Takes) -> Opt {
    Opt { name, short: Some(short as u8), has_long: true, takes }
}

/// Declares `--name`.
pub const fn long(name: &'static str, takes: Takes) -> Opt {
    Opt { name, short: None, has_long: true, takes }
}

/// Declares `-c`, the only letter in `name`.
pub const fn short(name: &'static str, takes: Takes) -> Opt {
    Opt { name, short: Some(name.as_bytes()[0]), has_long: false, takes }
}

/// An item of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    Option(&'static str, Option<OsString>),
    Operand(OsString),
}

/// An error in a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Misuse {
    /// An option that does not exist, or lacks its value.
    Option(String),
    /// Any other error.
    Other(String),
}

impl Misuse {
    pub fn other(text: impl Into<String>) -> Self {
        Misuse::Other(text.into())
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Misuse::Option(text) | Misuse::Other(text)) = self;
        f.write_str(text)
    }
}

/// Parses a command line without the program's name.
pub fn parse(options: &[Opt], args: Vec<OsString>) -> Result<Vec<Item>, Misuse> {
    let mut items = Vec::new();
    let mut args = VecDeque::from(args);
    while let Some(arg) = args.pop_front() {
        match arg.as_bytes() {
            b"--" => {
                items.extend(args.into_iter().map(Item::Operand));
                break;
            }
            [b'-', b'-', text @ ..] => items.push(parse_long(options, text, &mut args)?),
            [b'-', letters @ ..] if !letters.is_empty() => parse_short(options, letters, &mut args, &mut items)?,
            _ => items.push(Item::Operand(arg)),
        }
    }
    Ok(items)
}

fn parse_long(options: &[Opt], text: &[u8], rest: &mut VecDeque<OsString>) -> Result<Item, Misuse> {
    let (name, value) = match text.iter().position(|&b| b == b'=') {
        Some(at) => (&text[..at], Some(OsString::from_vec(text[at + 1..].to_vec()))),
        None => (text, None),
    };
    let option = find_long(options, name)?;
    let value = match (option.takes, value) {
        (Takes::Nothing, Some(_)) => {
            return Err(Misuse::Option(format!("option '--{}' doesn't allow an argument", option.name)));
        }
        (Takes::Value, None) => {
            let value = rest.pop_front();
            let missing = || Misuse::Option(format!("option '--{}' requires an argument", option.name));
            Some(value.ok_or_else(missing)?)
        }
        (_, value) => value,
    };
    Ok(Item::Option(option.name, value))
}

/// Returns the option with this long name, or the only one that begins with it.
fn find_long<'a>(options: &'a [Opt], name: &[u8]) -> Result<&'a Opt, Misuse> {
    let begins = |option: &&Opt| option.has_long && option.name.as_bytes().starts_with(name);
    let shown = name.escape_ascii();
    let mut candidates = options.iter().filter(begins);
    if let Some(exact) = candidates.clone().find(|option| option.name.len() == name.len()) {
        return Ok(exact);
    }
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(Misuse::Option(format!("option '--{shown}' is ambiguous"))),
        (None, _) => Err(Misuse::Option(format!("unrecognized option '--{shown}'"))),
    }
}

fn parse_short(
    options: &[Opt],
    letters: &[u8],
    rest: &mut VecDeque<OsString>,
    items: &mut Vec<Item>,
) -> Result<(), Misuse> {
    let mut letters = letters;
    while let Some((&letter, behind)) = letters.split_first() {
        let shown = letter.escape_ascii();
        let option = options.iter().find(|option| option.short == Some(letter));
        let option = option.ok_or_else(|| Misuse::Option(format!("invalid option -- '{shown}'")))?;
        if option.takes == Takes::Value {
            let glued = (!behind.is_empty()).then(|| OsString::from_vec(behind.to_vec()));
            let missing = || Misuse::Option(format!("option requires an argument -- '{shown}'"));
            let value = glued.or_else(|| rest.pop_front()).ok_or_else(missing)?;
            items.push(Item::Option(option.name, Some(value)));
            return Ok(());
        }
        items.push(Item::Option(option.name, None));
        letters = behind;
    }
    Ok(())
}

/// Parses a number as strtoull(3) does with base 0: decimal, `0x` hexadecimal, `0` octal.
pub fn number(text: &OsString) -> Option<u64> {
    let text = text.to_str()?;
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // Rust would accept a sign, too.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    u64::from_str_radix(digits, radix).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: [Opt; 6] = [
        both('h', "help", Takes::Nothing),
        short("d", Takes::Value),
        short("a", Takes::Nothing),
        long("device", Takes::Value),
        long("extract", Takes::Optional),
        long("extract-all", Takes::Nothing),
    ];

    fn read(args: &[&str]) -> Result<Vec<Item>, Misuse> {
        parse(&OPTIONS, args.iter().map(OsString::from).collect())
    }

    fn option(name: &'static str, value: Option<&str>) -> Item {
        Item::Option(name, value.map(OsString::from))
    }

    fn operand(text: &str) -> Item {
        Item::Operand(text.into())
    }

    #[test]
    fn options_are_written_in_many_ways() {
        for (args, expected) in [
            (&["-h", "image"][..], vec![option("help", None), operand("image")]),
            (&["image", "--help"], vec![operand("image"), option("help", None)]),
            (&["-d3"], vec![option("d", Some("3"))]),
            (&["-d", "3"], vec![option("d", Some("3"))]),
            (&["-ahd3"], vec![option("a", None), option("help", None), option("d", Some("3"))]),
            (&["--device=x=y"], vec![option("device", Some("x=y"))]),
            (&["--device", "x"], vec![option("device", Some("x"))]),
            (&["--dev=x"], vec![option("device", Some("x"))]),
            (&["--extract", "x"], vec![option("extract", None), operand("x")]),
            (&["--extract=x"], vec![option("extract", Some("x"))]),
            (&["--extract="], vec![option("extract", Some(""))]),
            (&["--extract-"], vec![option("extract-all", None)]),
            (&["--", "--help", "-x"], vec![operand("--help"), operand("-x")]),
            (&["-"], vec![operand("-")]),
            (&[], vec![]),
        ] {
            assert_eq!(read(args), Ok(expected), "{args:?}");
        }
    }

    #[test]
    fn what_is_no_option_is_named() {
        for (args, word) in [
            (&["--frob"][..], "'--frob'"),
            (&["--d"], "requires"),
            (&["--a"], "unrecognized"),
            (&["--extr"], "ambiguous"),
            (&["--help=x"], "doesn't allow"),
            (&["--device"], "requires"),
            (&["-d"], "requires"),
            (&["-ax"], "'x'"),
        ] {
            let Err(Misuse::Option(text)) = read(args) else { panic!("{args:?} is accepted") };
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn numbers_have_three_bases() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1536", Some(1536)),
            ("0x600", Some(1536)),
            ("03000", Some(1536)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("0x", None),
            ("0x+1", None),
            ("0+1", None),
            ("08", None),
            ("4k", None),
        ] {
            assert_eq!(number(&text.into()), expected, "{text}");
        }
    }
}
