//! Markdown of topics as text for terminals and man pages.
//!
//! Topics use a small part of Markdown: headings, paragraphs, lists, tables, and code that is
//! indented by four spaces.

/// Columns of a line.
const WIDTH: usize = 80;

/// Space in front of tables and code.
const INDENT: &str = "  ";

/// Returns `markdown` as lines of at most 80 columns. Code keeps its lines.
pub fn render(markdown: &str) -> String {
    let mut text = String::new();
    let lines: Vec<&str> = markdown.lines().collect();
    for block in lines.split(|line| line.is_empty()).filter(|block| !block.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&match block {
            [line] if line.starts_with('#') => format!("{}\n", line.trim_start_matches('#').trim_start()),
            [first, ..] if first.starts_with('|') => table(block),
            [first, ..] if first.starts_with("    ") => code(block),
            [first, ..] if first.starts_with("* ") => list(block),
            _ => wrap(&block.join(" "), "", ""),
        });
    }
    text
}

fn code(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{INDENT}{}\n", line.trim_start_matches("    "))).collect()
}

/// Returns the items of a list, each with its lines joined.
fn list(lines: &[&str]) -> String {
    let mut items: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix("* "), items.last_mut()) {
            (None, Some(item)) => *item = format!("{item} {}", line.trim_start()),
            (item, _) => items.push(item.unwrap_or(line).to_owned()),
        }
    }
    items.iter().map(|item| wrap(item, "* ", "  ")).collect()
}

/// Returns the rows of a table in columns, the last of which is wrapped. Tables of two columns have no header.
fn table(lines: &[&str]) -> String {
    let cells = |line: &&str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")).collect()
    };
    let mut rows: Vec<Vec<String>> = lines.iter().filter(|line| !line.starts_with("|-")).map(cells).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    if columns == 2 {
        rows.remove(0);
    }
    let width_of = |column: usize| {
        let widths = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        // A term that is longer has a line of its own.
        widths.filter(|&width| columns > 2 || width <= TERM_MAX).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.saturating_sub(1)).map(width_of).collect();
    let left: usize = INDENT.len() + widths.iter().map(|width| width + 2).sum::<usize>();
    let mut text = String::new();
    for row in &rows {
        let mut front = INDENT.to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            front.push_str(&format!("{cell:width$}  "));
        }
        if front.chars().count() > left {
            text.push_str(&format!("{}\n", front.trim_end()));
            front = " ".repeat(left);
        }
        text.push_str(&wrap(row.last().map_or("", String::as_str), &front, &" ".repeat(left)));
    }
    text
}

/// Columns of a term beside its meaning.
const TERM_MAX: usize = 24;

/// Returns `text` in lines, of which the first begins with `first`, all others with `rest`.
fn wrap(text: &str, first: &str, rest: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    let mut is_empty = true;
    for word in words(text) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&format!("{line}\n"));
            line = rest.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

/// Returns the words of `text`. Spaces between backticks separate none.
fn words(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let is_end = |c: char| {
        is_code ^= c == '`';
        c == ' ' && !is_code
    };
    text.split(is_end).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_kind() {
        let markdown =
            "# A: b\n\nOne\ntwo `c d`.\n\n* x\n  y\n* z\n\n    code  here\n\n| k | v |\n|---|---|\n| `a=B` | c |\n";
        let text = "A: b\n\nOne two `c d`.\n\n* x y\n* z\n\n  code  here\n\n  a=B  c\n";
        assert_eq!(render(markdown), text);
    }

    #[test]
    fn long_lines_are_wrapped_at_words() {
        let text = render(&format!("{} `a b`", "word ".repeat(15)));
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [80]);
        let text = render(&format!("{} `a b`", "word ".repeat(16)));
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [79, 5]);
        let row = format!("| k | v |\n|---|---|\n| `key` | {} |\n| {} | d |\n", "word ".repeat(20), "long".repeat(8));
        let lines =
            ["  key  ".to_owned() + "word ".repeat(14).trim_end(), "       ".to_owned() + "word ".repeat(6).trim_end()];
        let expected = format!("{}\n{}\n  {}\n       d\n", lines[0], lines[1], "long".repeat(8));
        assert_eq!(render(&row), expected);
    }
}
