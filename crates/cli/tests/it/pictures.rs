//! Pictures and pages: `kiln explain --picture`, `kiln du --html`.

use crate::common::{Scratch, fails, stdout, text};
use std::fs;
use std::process::Command;

#[test]
fn a_picture_shows_pieces_and_clusters() {
    let scratch = Scratch::new();
    let (tree, image, picture) = (scratch.path("tree"), scratch.path("image"), scratch.path("picture.svg"));
    fs::create_dir(&tree).unwrap();
    let name = "a&b<\"c\">";
    fs::write(format!("{tree}/{name}"), [text(1, 400_000), vec![0; 200_000], text(2, 100_000)].concat()).unwrap();
    fs::write(format!("{tree}/small"), "small").unwrap();
    stdout(&["pack", "--quiet", "-z", "lz4hc", "-C", "16k", &tree, &image]);
    stdout(&["explain", "--picture", &picture, &image, name]);
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("a&amp;b&lt;&quot;c&quot;&gt;") && !drawn.contains(name));
    // A rectangle for each piece and each cluster, and the paper.
    let told = String::from_utf8(stdout(&["explain", "--json", &image, name])).unwrap();
    let pieces = told.matches("\"decoding\"").count();
    let bars = drawn.matches("height=\"34\"").count();
    assert!(pieces > 5 && bars > pieces && bars <= 2 * pieces, "{pieces} pieces, {bars} bars");
    assert!(drawn.contains("did not compress") || drawn.contains("compressed"));
    // It is XML, for programs that read no other.
    if let Ok(done) = Command::new("python3")
        .args(["-c", "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])", &picture])
        .output()
    {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    fails(&["explain", "--picture", &picture, &image, "small"], 1, "--force");
    fails(&["explain", "--picture", &scratch.path("read.png"), &image, "small"], 2, "the picture is SVG, not png");
    assert!(!scratch.names().contains(&"read.png".into()));
    stdout(&["explain", "--force", "--picture", &picture, &image, "small", "0+2"]);
    assert!(fs::read_to_string(&picture).unwrap().contains("small"));
    fails(&["explain", "--force", "--picture", &picture, &image, "none"], 1, "none");
    assert!(fs::read_to_string(&picture).unwrap().contains("small"), "the last picture stays");
}

#[test]
fn a_page_shows_the_space_of_an_image() {
    let scratch = Scratch::new();
    let (tree, image, page) = (scratch.path("tree"), scratch.path("image"), scratch.path("page.html"));
    for (dir, len) in [("usr/lib", 900_000), ("usr/share/<doc>", 300_000), ("etc", 5000)] {
        fs::create_dir_all(format!("{tree}/{dir}")).unwrap();
        fs::write(format!("{tree}/{dir}/file.so.6"), text(len as u64, len)).unwrap();
        fs::write(format!("{tree}/{dir}/again.TXT"), text(len as u64, len)).unwrap();
    }
    stdout(&["pack", "--quiet", &tree, &image]);
    stdout(&["du", "--html", &page, &image]);
    let written = fs::read_to_string(&page).unwrap();
    for wanted in ["/usr/lib: ", "/usr/share/&lt;doc&gt;", "<td>.so<td>3<td>", "<td>.txt<td>3<td>", "6 files of "] {
        assert!(written.contains(wanted), "{wanted}: {written}");
    }
    assert!(!written.contains("<doc>") && !written.contains("http"), "it needs no other file");
    fails(&["du", "--html", &page, &image], 1, "--force");
    stdout(&["du", "--force", "--html", &page, &image]);
}
