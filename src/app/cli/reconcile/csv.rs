//! Rows of a table with names over its columns (RFC 4180), as spreadsheets and providers write them.

/// The rows of a text, each with its cells under the names of the first line. A row with fewer cells has fewer; further ones have no name.
pub(super) fn rows(text: &str) -> Vec<Vec<(String, String)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    // What Excel writes where a comma is for decimals, and databases.
    let by = [',', ';', '\t'].into_iter().max_by_key(|by| (first.matches(*by).count(), *by == ',')).unwrap_or(',');
    let mut lines = cells(text, by).into_iter();
    let names: Vec<String> =
        lines.next().unwrap_or_default().iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    let row =
        |cells: Vec<String>| names.iter().cloned().zip(cells.into_iter().map(|cell| cell.trim().to_owned())).collect();
    lines.filter(|cells| cells.iter().any(|cell| !cell.trim().is_empty())).map(row).collect()
}

fn cells(text: &str, by: char) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut chars) = (false, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quoted || cell.is_empty() => quoted = !quoted,
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                line.push(std::mem::take(&mut cell));
                lines.push(std::mem::take(&mut line));
            }
            c if c == by && !quoted => line.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    if !cell.is_empty() || !line.is_empty() {
        line.push(cell);
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_stand_under_their_names() {
        let text = "\u{feff}Model, cost\r\n\"a,\"\"b\"\"\nc\",1\r\n\r\nd\n";
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(rows(text), [vec![pair("model", "a,\"b\"\nc"), pair("cost", "1")], vec![pair("model", "d")]]);
        assert_eq!(rows("model;cost\nx;1,5\n"), [vec![pair("model", "x"), pair("cost", "1,5")]]);
        assert!(rows("").is_empty());
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(cells in proptest::collection::vec("[a-z,;\"\n]{1,12}", 1..6)) {
            let cells: Vec<String> = cells.into_iter().map(|cell| format!("x{cell}x")).collect();
            let names: Vec<String> = (0..cells.len()).map(|at| format!("n{at}")).collect();
            let line: Vec<String> = cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            let read = rows(&format!("{}\n{}\n", names.join(","), line.join(",")));
            let found: Vec<String> = read[0].iter().map(|(_, cell)| cell.clone()).collect();
            prop_assert_eq!(found, cells);
        }

        #[test]
        fn any_text_is_read(text in "\\PC{0,80}") {
            rows(&text);
        }
    }
}
