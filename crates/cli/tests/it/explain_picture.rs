//! `kiln explain --picture`.

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
    stdout(&["explain", "--force", "--picture", &picture, &image, "small", "0+2"]);
    assert!(fs::read_to_string(&picture).unwrap().contains("small"));
    fails(&["explain", "--force", "--picture", &picture, &image, "none"], 1, "none");
    assert!(fs::read_to_string(&picture).unwrap().contains("small"), "the last picture stays");
}
