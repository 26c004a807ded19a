//! What the README says. Its command lines are run by `xtask/tests/it.rs`.

/// What the README says of accuracy is what the scoreboards hold.
#[test]
fn its_figures_are_those_of_the_scoreboards() {
    let read = |name: &str| std::fs::read_to_string(crate::root().join(name)).unwrap();
    let readme = read("README.md").replace('\n', " ");
    let board = read("docs/scoreboard.md");
    let row = |name: &str| board.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
    let numbers = |line: &str| -> Vec<u32> {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
    };
    let [ranks, of_ranks, ..] = numbers(row("right culprit rank"))[..] else { panic!("no ranks") };
    let [right, of, _, exact, ..] = numbers(row("right cause"))[..] else { panic!("no causes") };
    assert_eq!((ranks, right), (of_ranks, of));
    let claim = format!(
        "Of {of} faults planted on four H200 GPUs it named the cause of all ({exact} by the exact id), and the rank of all {ranks}"
    );
    assert!(readme.contains(&claim), "{claim}");
    let (mut n_right, mut n_cases) = (0, 0);
    for line in read("docs/unseen.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let round = cells.get(1).and_then(|name| name.split(',').next()?.parse::<u32>().ok());
        if let (Some(64..=104), [_, _, cases, _, before, ..]) = (round, &cells[..]) {
            n_cases += cases.parse::<u32>().unwrap();
            n_right += numbers(before)[0];
        }
    }
    assert!(
        readme.contains(&format!("about two thirds (rounds 64 to 104, {n_cases} cases)")),
        "{n_cases} cases"
    );
    assert!((60..=72).contains(&(n_right * 100 / n_cases)), "{n_right} of {n_cases}");
}
