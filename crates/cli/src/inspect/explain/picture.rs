//! A picture of a read: the text of a file, and below it, to the same scale, the stored bytes that it comes from.

use crate::console::document::escape;
use crate::console::size::Human;
use kiln_read::{Cost, Decoding, ExtentKind, ReadPiece};
use std::fmt::Write;
use std::ops::Range;

/// Most pieces that are drawn: more could not be told apart.
const PIECES_MAX: usize = 400;
const WIDTH: f64 = 860.0;
const LEFT: f64 = 20.0;
/// Upper edges of the bars, and their height.
const TEXT_Y: f64 = 70.0;
const STORED_Y: f64 = 190.0;
const BAR: f64 = 34.0;

const STYLE: &str = "\
svg{font:13px system-ui,sans-serif;--ink:#1f2328;--dim:#656d76;--paper:#fff;--raw:#d0d7de;--plain:#9ec5fe;\
--encoded:#2f6feb;--packed:#8250df;--meta:#bf8700;--hole:none}@media(prefers-color-scheme:dark){svg{\
--ink:#e6edf3;--dim:#9198a1;--paper:#0d1117;--raw:#484f58;--plain:#33537d;--encoded:#4493f8;--packed:#ab7df8;\
--meta:#d29922}}text{fill:var(--ink)}.dim{fill:var(--dim)}.paper{fill:var(--paper)}rect,path{\
stroke:var(--paper);stroke-width:.7}.raw{fill:var(--raw)}.plain{fill:var(--plain)}.encoded{\
fill:var(--encoded)}.packed{fill:var(--packed)}.meta{fill:var(--meta)}.hole{fill:none;stroke:var(--dim);\
stroke-dasharray:3}.link{opacity:.25}.edge{fill:none;stroke:var(--ink);stroke-width:1}";

/// A piece of text, or of stored bytes, on its bar.
struct Segment {
    range: Range<u64>,
    class: &'static str,
    about: String,
}

/// Returns the class of an extent, and the stored bytes that hold it: where they are, and their length.
fn stored(piece: &ReadPiece) -> (&'static str, String, u64) {
    let wanted = piece.wanted.end - piece.wanted.start;
    let on = |device: u16, pa: u64| match device {
        0 => format!("byte {pa}"),
        device => format!("byte {pa} of device {device}"),
    };
    let (class, place, len) = match piece.extent.kind {
        ExtentKind::Hole => ("hole", "a hole".into(), 0),
        ExtentKind::Raw { device, pa } => ("raw", on(device, pa), wanted),
        ExtentKind::Meta { pa, .. } => ("meta", format!("beside its inode, byte {pa} of the metadata"), wanted),
        ExtentKind::Plain { device, pa, plen, .. } => ("plain", on(device, pa), plen.into()),
        ExtentKind::Encoded { algorithm, device, pa, plen, .. } => {
            ("encoded", format!("{}, {algorithm:?}", on(device, pa)), plen.into())
        }
        _ => ("raw", "stored".into(), wanted),
    };
    match piece.fragment {
        Some(_) if class != "hole" => ("packed", format!("{place}, with other files"), len),
        _ => (class, place, len),
    }
}

/// Returns a picture of the pieces of a read of `path`.
pub fn draw(path: &str, pieces: &[ReadPiece], cost: &Cost) -> String {
    let shown = &pieces[..pieces.len().min(PIECES_MAX)];
    let (mut texts, mut clusters, mut links) = (Vec::<Segment>::new(), Vec::<Segment>::new(), Vec::new());
    let (mut text_end, mut stored_end) = (0, 0);
    for piece in shown {
        let (class, place, len) = stored(piece);
        let wanted = piece.wanted.end - piece.wanted.start;
        let about = format!("bytes {} to {} of the file: {place}", piece.wanted.start, piece.wanted.end);
        let text = Segment { range: text_end..text_end + wanted, class, about };
        text_end += wanted;
        // A cluster that holds several pieces is drawn once.
        let is_again = piece.decoding == Decoding::Cached && !clusters.is_empty();
        if len > 0 && !is_again {
            let about = format!("{len} stored bytes at {place}, which hold {} of text", Human(piece.extent.llen));
            clusters.push(Segment { range: stored_end..stored_end + len, class, about });
            stored_end += len;
        }
        if len > 0 {
            links.push((text.range.clone(), clusters.last().map_or(0..0, |one| one.range.clone()), class));
        }
        texts.push(text);
    }
    let scale = WIDTH / text_end.max(stored_end).max(1) as f64;
    let x = |at: u64| LEFT + at as f64 * scale;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 330\" role=\"img\"><title>A read of {0}</title>\
         <style>{STYLE}</style><rect class=\"paper\" width=\"900\" height=\"330\"/>\
         <text x=\"20\" y=\"28\" font-size=\"16\">{0}</text>\
         <text class=\"dim\" x=\"20\" y=\"60\">text: {1}</text>\
         <text class=\"dim\" x=\"20\" y=\"245\">stored, to the same scale: {2}</text>",
        escape(path),
        Human(text_end),
        Human(stored_end),
    );
    for (text, cluster, class) in &links {
        let [a, b, c, d] = [x(text.start), x(text.end), x(cluster.end), x(cluster.start)];
        let (top, bottom) = (TEXT_Y + BAR, STORED_Y);
        let _ = write!(
            out,
            "<path class=\"link {class}\" d=\"M{a:.1} {top}L{b:.1} {top}L{c:.1} {bottom}L{d:.1} {bottom}Z\"/>"
        );
    }
    for (y, segments) in [(TEXT_Y, &texts), (STORED_Y, &clusters)] {
        for Segment { range, class, about } in segments {
            let (left, width) = (x(range.start), (x(range.end) - x(range.start)).max(0.5));
            let about = escape(about);
            let _ = write!(
                out,
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\">\
                 <title>{about}</title></rect>"
            );
        }
    }
    let times = cost.fetch_amplification().map_or(String::new(), |times| format!(", {times:.2} times what is wanted"));
    let _ = write!(
        out,
        "<text x=\"20\" y=\"280\">A cold read of {} fetches {}{times}, and decodes {}.</text>",
        Human(cost.wanted),
        Human(cost.fetched),
        Human(cost.decoded),
    );
    if pieces.len() > shown.len() {
        let _ = write!(
            out,
            "<text class=\"dim\" x=\"20\" y=\"304\">The first {} of {} pieces are drawn.</text>",
            shown.len(),
            pieces.len()
        );
    } else {
        out.push_str(&legend(&texts));
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the names of the classes that occur.
fn legend(texts: &[Segment]) -> String {
    let names = [
        ("encoded", "compressed"),
        ("plain", "did not compress"),
        ("packed", "packed with other files"),
        ("raw", "not compressed"),
        ("meta", "beside its inode"),
        ("hole", "hole"),
    ];
    let (mut out, mut left) = (String::new(), 20.0);
    for (class, name) in names.into_iter().filter(|(class, _)| texts.iter().any(|one| one.class == *class)) {
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{left}\" y=\"294\" width=\"12\" height=\"12\"/>\
             <text class=\"dim\" x=\"{}\" y=\"304\">{name}</text>",
            left + 18.0
        );
        left += 40.0 + 7.5 * name.len() as f64;
    }
    out
}
