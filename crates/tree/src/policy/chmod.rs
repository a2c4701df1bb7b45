//! Changes of permissions, in the syntax of chmod(1) with rsync's extensions.

use std::str::FromStr;

use crate::syntax::SyntaxError;

/// Changes of permissions, applied in order: `u+rwX,go-w`, `D755,F644`.
///
/// A leading `D` restricts a change to directories, `F` to all other files. A number is the whole
/// mode. A change without any of `ugoa` applies to all three, regardless of the umask, so that the
/// same text gives the same image everywhere. Symbolic links have no permissions to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chmod(Vec<Clause>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    about: ChmodScope,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChmodScope {
    Everything,
    Directories,
    Others,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set(u16),
    Symbolic { who: UserClasses, operator: Operator, what: Vec<ChmodItem> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Assign,
}

/// An item to the right of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChmodItem {
    /// Read, write and execute bits, as the lowest three bits.
    Bits(u16),
    /// `X`: execute, for directories and files that anyone may execute.
    ExecuteIfAny,
    /// `s`: set-user-ID and set-group-ID.
    SetId,
    /// `t`: the sticky bit.
    Sticky,
    /// Current permissions of owner, group or others; the value is the shift of their bits.
    As(u32),
}

/// Classes of users to which a change applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UserClasses {
    user: bool,
    group: bool,
    others: bool,
}

impl UserClasses {
    const ALL: UserClasses = UserClasses { user: true, group: true, others: true };

    /// Returns `bits` (0 to 7), shifted to the position of each selected class.
    fn spread(self, bits: u16) -> u16 {
        let at = |is_meant: bool, shift: u32| if is_meant { bits << shift } else { 0 };
        at(self.user, 6) | at(self.group, 3) | at(self.others, 0)
    }

    fn set_id(self) -> u16 {
        (if self.user { 0o4000 } else { 0 }) | (if self.group { 0o2000 } else { 0 })
    }

    fn sticky(self) -> u16 {
        if self.others { 0o1000 } else { 0 }
    }
}

impl Chmod {
    /// Returns the permissions of a file that had `mode`, in 12 bits.
    pub fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        self.0.iter().fold(mode, |mode, clause| match (clause.about, is_dir) {
            (ChmodScope::Directories, false) | (ChmodScope::Others, true) => mode,
            _ => clause.change.apply(mode, is_dir),
        })
    }

    /// Returns true if there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Change {
    fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        let (who, operator, what) = match self {
            Change::Set(mode) => return *mode,
            Change::Symbolic { who, operator, what } => (who, operator, what),
        };
        let bits = what.iter().fold(0, |bits, what| {
            bits | match *what {
                ChmodItem::Bits(of_others) => who.spread(of_others),
                ChmodItem::ExecuteIfAny if is_dir || mode & 0o111 != 0 => who.spread(1),
                ChmodItem::ExecuteIfAny => 0,
                ChmodItem::SetId => who.set_id(),
                ChmodItem::Sticky => who.sticky(),
                ChmodItem::As(shift) => who.spread(mode >> shift & 7),
            }
        });
        match operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Assign => mode & !(who.spread(7) | who.set_id() | who.sticky()) | bits,
        }
    }
}

impl FromStr for Chmod {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let mut clauses = Vec::new();
        for written in text.split(',') {
            clause(written, &mut clauses)
                .map_err(|reason| SyntaxError::new("change of mode", written.as_bytes(), reason))?;
        }
        Ok(Self(clauses))
    }
}

fn clause(text: &str, clauses: &mut Vec<Clause>) -> Result<(), &'static str> {
    let (about, rest) = match text.as_bytes() {
        [b'D', ..] => (ChmodScope::Directories, &text[1..]),
        [b'F', ..] => (ChmodScope::Others, &text[1..]),
        _ => (ChmodScope::Everything, text),
    };
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u16::from_str_radix(rest, 8).ok().filter(|&mode| mode <= 0o7777);
        let change = Change::Set(mode.ok_or("expected an octal number up to 7777")?);
        clauses.push(Clause { about, change });
        return Ok(());
    }
    let who_len = rest.find(|c| !"ugoa".contains(c)).ok_or("+, - or = is missing")?;
    let (who, mut rest) = rest.split_at(who_len);
    let who = who.chars().fold(if who.is_empty() { UserClasses::ALL } else { UserClasses::default() }, add_who);
    while !rest.is_empty() {
        let operator = match rest.as_bytes()[0] {
            b'+' => Operator::Add,
            b'-' => Operator::Remove,
            b'=' => Operator::Assign,
            _ => return Err("write it as u+rwX, go-w, a=r, g=u or 755, with D or F in front"),
        };
        let what_len = rest[1..].find(['+', '-', '=']).unwrap_or(rest.len() - 1);
        let what = rest[1..=what_len].chars().map(what).collect::<Result<_, _>>()?;
        clauses.push(Clause { about, change: Change::Symbolic { who, operator, what } });
        rest = &rest[1 + what_len..];
    }
    Ok(())
}

fn add_who(who: UserClasses, letter: char) -> UserClasses {
    match letter {
        'u' => UserClasses { user: true, ..who },
        'g' => UserClasses { group: true, ..who },
        'o' => UserClasses { others: true, ..who },
        _ => UserClasses::ALL,
    }
}

fn what(letter: char) -> Result<ChmodItem, &'static str> {
    Ok(match letter {
        'r' => ChmodItem::Bits(4),
        'w' => ChmodItem::Bits(2),
        'x' => ChmodItem::Bits(1),
        'X' => ChmodItem::ExecuteIfAny,
        's' => ChmodItem::SetId,
        't' => ChmodItem::Sticky,
        'u' => ChmodItem::As(6),
        'g' => ChmodItem::As(3),
        'o' => ChmodItem::As(0),
        _ => return Err("only r, w, x, X, s, t, u, g and o can follow +, - or ="),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_has_them() {
        for (rules, before, file, dir) in [
            ("u+rwX,go-w", 0o466, 0o644, 0o744),
            ("u+rwX,go-w", 0o576, 0o754, 0o754),
            ("D755,F644", 0o1, 0o644, 0o755),
            ("D2755,F4711", 0o1, 0o4711, 0o2755),
            ("a=rX", 0o700, 0o555, 0o555),
            ("a=rX", 0o600, 0o444, 0o555),
            ("=", 0o7777, 0, 0),
            ("+x", 0o600, 0o711, 0o711),
            ("g=u", 0o750, 0o770, 0o770),
            ("g=u,o=", 0o4755, 0o4770, 0o4770),
            ("o+g-x", 0o770, 0o776, 0o776),
            ("u=rwxs,g+s", 0o011, 0o6711, 0o6711),
            ("u=rw", 0o6755, 0o2655, 0o2655),
            ("+t", 0o777, 0o1777, 0o1777),
            ("u+t", 0o777, 0o777, 0o777),
            ("ug-s", 0o7777, 0o1777, 0o1777),
            ("Dg+s,Fo-r", 0o755, 0o751, 0o2755),
            ("F-x,+X", 0o755, 0o644, 0o755),
            ("0", 0o755, 0, 0),
        ] {
            let chmod: Chmod = rules.parse().unwrap();
            let after = (chmod.apply(before, false), chmod.apply(before, true));
            assert_eq!(after, (file, dir), "{rules} of {before:o}: {:o} {:o}", after.0, after.1);
        }
    }

    #[test]
    fn invalid_changes_are_refused() {
        for text in ["", ",", "u", "u+q", "755x", "10000", "8", "D", "DF644", "z+x", "u+r,", "+r é", "é", "755,é=r"]
        {
            let error = text.parse::<Chmod>().unwrap_err();
            assert_eq!(error.field, "change of mode", "{text}");
        }
    }
}
