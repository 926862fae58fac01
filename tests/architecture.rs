//! Whether the house stands as `src/lib.rs` draws it: a module uses only modules listed above it, children do not
//! use their parent, and the floors up to the admission core know no clock, no runtime, no network and no chance.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The last module that must be pure; so must all above it be.
const LAST_PURE: &str = "admission";

/// What a pure module must not name.
const IMPURE: [&str; 8] =
    ["tokio", "reqwest", "hyper", "fastrand", "rand", "Instant::now", "SystemTime::now", "thread::sleep"];

/// The sources of a crate, by module path: `""` for `lib.rs`, `"admission::gate"`.
type Sources = BTreeMap<String, String>;

#[test]
fn the_house_stands_as_it_is_drawn() {
    let sources = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), "");
    assert!(sources.len() > 15, "only {} modules found", sources.len());
    assert_eq!(breaches(&sources), Vec::<String>::new());
}

#[test]
fn the_program_stands_as_it_is_drawn() {
    let sources = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/throttle")), "");
    assert!(sources.len() > 3, "only {} modules found", sources.len());
    assert_eq!(breaches(&sources), Vec::<String>::new());
}

#[test]
fn a_case_that_breaks_the_rule_is_caught() {
    let house = |low: &str, parent: &str, child: &str| {
        let lib = "mod low;\nmod admission;\nmod high;\n";
        let modules = [("", lib), ("low", low), ("admission", parent), ("admission::child", child), ("high", "")];
        let modules = modules.map(|(path, source)| (path.to_owned(), source.to_owned()));
        breaches(&modules.into_iter().collect())
    };
    let parent = "mod child;\nmod later;\n";
    let one = |found: Vec<String>, expected: &str| assert_eq!(found, [expected]);

    assert!(house("", parent, "use crate::low::Low;").is_empty());
    assert!(house("// crate::high, tokio\nconst S: &str = \"crate::high\";", parent, "").is_empty());
    one(house("use crate::high::High;", parent, ""), "low uses high, which is not above it");
    one(house("use crate::{low::Low, high::{self, A}};", parent, ""), "low uses high, which is not above it");
    one(house("fn f() { crate::high::f() }", parent, ""), "low uses high, which is not above it");
    one(house("", parent, "use super::later::X;"), "admission::child uses admission::later, which is not above it");
    one(
        house("", parent, "use crate::admission::later;"),
        "admission::child uses admission::later, which is not above it",
    );
    one(house("", parent, "use super::Parent;"), "admission::child uses its parent's Parent");
    one(house("", parent, "use crate::high;"), "admission::child uses high, which is not above it");
    one(house("use tokio::sync::Notify;", parent, ""), "low is pure and names tokio");
    one(house("", parent, "let now = std::time::Instant::now();"), "admission::child is pure and names Instant::now");
    one(house("", &format!("{parent}let x = fastrand::u32(..);"), ""), "admission is pure and names fastrand");
}

/// `tests/scenarios.md` names tests that exist.
#[test]
fn every_scenario_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/scenarios.md")).unwrap();
    let sources = [root.join("src"), root.join("tests")].map(|folder| all_text(&folder)).concat();
    let named = list.lines().filter(|line| line.starts_with("| ")).flat_map(|line| line.split('`').skip(1).step_by(2));
    let named: Vec<_> = named.filter(|name| name.contains('_')).collect();
    assert!(named.len() > 40, "only {} tests are named", named.len());
    for name in named {
        assert!(sources.contains(&format!("fn {name}()")), "there is no test {name}");
    }
}

/// All that is written in Rust.
fn all_text(folder: &Path) -> String {
    let is_code = |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_code);
    entries.map(|path| if path.is_dir() { all_text(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}

fn read(folder: &Path, parent: &str) -> Sources {
    let mut sources = Sources::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = if parent.is_empty() { name.clone() } else { format!("{parent}::{name}") };
        if name == "tests" || module == "bin" {
            continue;
        }
        if path.is_dir() {
            sources.extend(read(&path, &module));
        } else {
            let module = if ["lib", "main"].contains(&module.as_str()) { String::new() } else { module };
            sources.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
    sources
}

fn breaches(sources: &Sources) -> Vec<String> {
    let code: BTreeMap<_, _> = sources.iter().map(|(path, source)| (path.as_str(), tokens(source))).collect();
    let order: BTreeMap<_, _> = code.iter().map(|(path, tokens)| (*path, modules(tokens))).collect();
    let pure = |path: &str| {
        let place = |name: &str| order[""].iter().position(|module| module == name);
        let top = path.split("::").next().unwrap_or_default();
        !path.is_empty() && place(top) <= place(LAST_PURE)
    };
    let mut found = Vec::new();
    for (path, tokens) in &code {
        let mut used: Vec<_> = uses(path, tokens).iter().filter_map(|used| breach(path, used, &order)).collect();
        used.dedup();
        found.extend(used);
        let named = IMPURE.iter().filter(|word| pure(path) && names(tokens, word));
        found.extend(named.map(|word| format!("{path} is pure and names {word}")));
    }
    found
}

/// The modules that a source declares, in order.
fn modules(tokens: &[String]) -> Vec<String> {
    let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    declared.map(|three| three[1].clone()).collect()
}

/// The paths below `crate` that a source names, two segments deep: `admission::gate`.
fn uses(module: &str, tokens: &[String]) -> Vec<String> {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut used = Vec::new();
    for start in 0..tokens.len() {
        let root = match tokens[start].as_str() {
            "crate" => "",
            "super" => parent,
            _ => continue,
        };
        let rest = &tokens[start + 1..];
        if rest.first().is_some_and(|token| token == "::") {
            used.extend(branches(root, &rest[1..], 2));
        }
    }
    used
}

/// `a::{b, c::d}` as `a::b`, `a::c`, so many segments deep.
fn branches(root: &str, tokens: &[String], depth: usize) -> Vec<String> {
    let Some(first) = tokens.first() else { return Vec::new() };
    if first == "{" {
        return elements(&tokens[1..]).iter().flat_map(|element| branches(root, element, depth)).collect();
    }
    let path = if root.is_empty() { first.clone() } else { format!("{root}::{first}") };
    match tokens.get(1) {
        Some(next) if next == "::" && depth > 1 => branches(&path, &tokens[2..], depth - 1),
        _ => vec![path],
    }
}

/// The elements of a group that has just been opened.
fn elements(tokens: &[String]) -> Vec<&[String]> {
    let (mut elements, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "," | "}" if depth == 0 => {
                elements.push(&tokens[start..at]);
                start = at + 1;
                if token == "}" {
                    break;
                }
            }
            _ => {}
        }
    }
    elements
}

fn breach(module: &str, used: &str, order: &BTreeMap<&str, Vec<String>>) -> Option<String> {
    // Where the two paths part, both stand in the list of the same parent.
    let (mut parent, mut mine, mut theirs) = (String::new(), module, used);
    loop {
        let (my_first, my_rest) = mine.split_once("::").unwrap_or((mine, ""));
        let (their_first, their_rest) = theirs.split_once("::").unwrap_or((theirs, ""));
        let place = |name: &str| order.get(parent.as_str())?.iter().position(|module| module == name);
        if mine.is_empty() {
            // The parent itself names its own children, or its own items.
            return None;
        }
        if my_first != their_first {
            return match (place(my_first), place(their_first)) {
                (Some(my_place), Some(place)) if place < my_place => None,
                (_, None) if !parent.is_empty() => Some(format!("{module} uses its parent's {their_first}")),
                _ => Some(format!("{module} uses {}, which is not above it", join(&parent, their_first))),
            };
        }
        parent = join(&parent, my_first);
        (mine, theirs) = (my_rest, their_rest);
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}::{name}") }
}

fn names(tokens: &[String], word: &str) -> bool {
    let word = self::tokens(word);
    tokens.windows(word.len()).any(|window| window == word)
}

/// Words, `::` and single signs, without comments, literals, and the tests at the end of the file.
fn tokens(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| token_length(rest));
        if skipped(rest).is_none() && !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

fn token_length(rest: &str) -> usize {
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let sign = if rest.starts_with("::") { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
    word.max(sign)
}

/// The length of a comment or a literal, if one begins here.
fn skipped(rest: &str) -> Option<usize> {
    let up_to = |end: &str, from: usize| Some(rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len()));
    if rest.starts_with("//") {
        up_to("\n", 2)
    } else if rest.starts_with("/*") {
        up_to("*/", 2)
    } else if rest.starts_with("r#\"") {
        up_to("\"#", 3)
    } else if rest.starts_with("r\"") {
        up_to("\"", 2)
    } else if rest.starts_with('"') {
        Some(string_length(rest))
    } else if rest.starts_with("'\\") {
        up_to("'", 3)
    } else if rest.starts_with('\'') && rest.chars().nth(2) == Some('\'') {
        Some(rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at))
    } else {
        None
    }
}

fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}
