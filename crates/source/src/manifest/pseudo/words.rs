//! Words of a definition, separated by spaces, with quotes and backslashes.

/// Rest of a line.
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Words<'a> {
    /// Returns the next word. Returns `None` if there is none, or if its quotes are not closed.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.0 = self.0.trim_ascii_start();
        let (mut word, mut is_quoted, mut has_any) = (Vec::new(), false, false);
        loop {
            let Some((first, tail)) = self.0.split_first() else {
                return (has_any && !is_quoted).then_some(word);
            };
            match first {
                b'"' => is_quoted = !is_quoted,
                b'\\' => {
                    let (escaped, tail) = tail.split_first()?;
                    word.push(*escaped);
                    self.0 = tail;
                    has_any = true;
                    continue;
                }
                byte if byte.is_ascii_whitespace() && !is_quoted => return Some(word),
                byte => word.push(*byte),
            }
            has_any = true;
            self.0 = tail;
        }
    }

    /// Returns the rest of the line without interpreting it.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0).trim_ascii_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_spaces() {
        let mut words = Words(br#"  a\ b\\"c d"e  "" "q  rest of it "#);
        assert_eq!(words.next().as_deref(), Some(&br"a b\c de"[..]));
        assert_eq!(words.next().as_deref(), Some(&b""[..]));
        assert_eq!(words.next(), None);
        let mut words = Words(b"s  rest of it ");
        assert_eq!((words.next().as_deref(), words.rest()), (Some(&b"s"[..]), &b"rest of it "[..]));
        assert_eq!((words.next(), words.rest()), (None, &b""[..]));
        assert_eq!(Words(b"a\\").next(), None);
    }
}
