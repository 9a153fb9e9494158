//! Built-in cards are valid and cite a source for each figure; an invalid card is refused in one line that names the key.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "cards/ceilings.rs"]
mod ceilings;

use flashwright_ssd::{Card, CardError, Ftl, Isolation, LogicalPage, Placement, Untimed, Upkeep};

const SMALL: &str = include_str!("../cards/test.toml");

#[test]
fn built_in_cards_are_valid_with_and_without_placement() {
    for card in Card::built_in() {
        for placement in [true, false] {
            let layout = card.shape(placement).layout();
            let layout = layout.unwrap_or_else(|error| panic!("{}: {error}", card.name));
            assert!(layout.shape().op_ratio() > 0.06, "{}: {}", card.name, layout.shape().op_ratio());
        }
        assert_eq!(Card::load(&card.name).unwrap(), card);
    }
}

/// A rating in drive writes a day is in host writes, so its write amplification counts. The photo study, the test drive and the
/// emulator have no data sheet.
#[test]
fn cards_of_products_are_rated_in_host_writes() {
    for card in Card::built_in() {
        let of_media = ["photo", "test", "warp448"].contains(&card.name.as_str());
        assert_eq!(card.endurance.dlwa() > 3.0, !of_media, "{}: {:?}", card.name, card.endurance);
    }
    let dlwa = |name| Card::load(name).unwrap().endurance.dlwa();
    assert_eq!((dlwa("pm9d3"), dlwa("tlc"), dlwa("qlc")), (3.96, 7.4, 6.92));
}

#[test]
fn every_figure_of_a_built_in_card_has_a_source() {
    for name in Card::built_in().iter().map(|card| card.name.as_str()) {
        let text =
            std::fs::read_to_string(format!("{}/cards/{name}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let card: toml::Table = text.parse().unwrap();
        let sources = card["sources"].as_table().unwrap();
        let mut figures = 0;
        for (table, keys) in card.iter().filter(|(table, _)| *table != "sources") {
            for key in keys.as_table().into_iter().flat_map(toml::Table::keys) {
                let figure = format!("{table}.{key}");
                let source = sources.get(&figure).and_then(toml::Value::as_str);
                assert!(source.is_some_and(|source| !source.is_empty()), "{name}: {figure} has no source");
                figures += 1;
            }
        }
        assert_eq!(figures, sources.len(), "{name}: the sources name a figure that the card does not have");
    }
}

#[test]
fn pm9d3_has_the_figures_of_the_paper() {
    let card = Card::load("pm9d3").unwrap();
    let shape = card.shape(true);
    assert_eq!(shape.isolation, Isolation::initially_isolated(8));
    assert_eq!((shape.units, shape.groups), (341, 1));
    assert!((shape.op_ratio() - 0.17).abs() < 0.005, "{}", shape.op_ratio());
    assert_eq!(card.shape(false).isolation, Isolation::CONVENTIONAL);
}

#[test]
fn scaled_card_keeps_units_handles_and_over_provisioning() {
    let card = Card::load("pm9d3").unwrap();
    for divisor in [16, 64, 1024, 24_576] {
        let small = card.scaled(divisor).unwrap();
        let (from, to) = (card.shape(true), small.shape(true));
        assert_eq!((to.units, &to.isolation), (from.units, &from.isolation), "1/{divisor}");
        assert_eq!(to.unit_pages, from.unit_pages / divisor);
        assert!((to.op_ratio() / from.op_ratio() - 1.0).abs() < 1e-3, "1/{divisor}: {}", to.op_ratio());
    }
    let error = card.scaled(24_577).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pm9d3: space.unit_bytes: at 1/24577 a unit has 63 pages, fewer than the minimum of 64: scale by 1/24576 at most"
    );
}

/// Catches a regression: the unscaled card is refused like a scaled one, with "scale by 1/0 at most".
#[test]
fn card_with_the_smallest_units_is_valid_unscaled_only() {
    let text = SMALL.replace("unit_bytes = 262_144", "unit_bytes = 131_072");
    let card = Card::parse("mine", &text).unwrap();
    assert_eq!(card.scaled(1), Ok(card.clone()));
    let error = card.scaled(2).unwrap_err().to_string();
    assert_eq!(
        error,
        "test: space.unit_bytes: at 1/2 a unit has 16 pages, fewer than the minimum of 64: this drive cannot be scaled"
    );
}

/// The number of a unit's group is stored in one byte. With 257 groups, the units of the last one would count for the
/// first.
#[test]
fn drive_with_the_maximum_number_of_groups_stays_consistent() {
    let mut card = Card::load("test").unwrap();
    card.placement = None;
    let mut shape = card.shape(false);
    (shape.groups, shape.units, shape.unit_pages, shape.logical_pages) = (256, 512, 2, 500);
    let mut drive = Ftl::new(shape.layout().unwrap(), Upkeep::default());
    for page in (0..500).chain((0..500).rev()) {
        drive.write(LogicalPage(page), 1, Placement::DEFAULT, &mut Untimed);
    }
    drive.check().unwrap();
}

/// The test card with one line changed.
fn changed(from: &str, to: &str) -> Result<Card, CardError> {
    assert!(SMALL.contains(from), "{from}");
    Card::parse("mine", &SMALL.replacen(from, to, 1))
}

fn refusal(from: &str, to: &str) -> String {
    let error = changed(from, to).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn invalid_card_is_refused_in_one_line_with_its_key() {
    let cases = [
        ("block_bytes = 4096", "block_bytes = 4000", "mine: space.block_bytes: 4000 is not a power of two"),
        ("block_bytes = 4096", "block_bytes = 8192", "mine: space.page_bytes: 4096 is less than a block"),
        (
            "unit_bytes = 262_144",
            "unit_bytes = 262_145",
            "mine: space.unit_bytes: 262145 bytes is not a multiple of the",
        ),
        (
            "unit_bytes = 262_144",
            "unit_bytes = 4096",
            "mine: space.unit_bytes: 1 pages are fewer than the minimum of 2",
        ),
        ("unit_bytes = 262_144", "unit_bytes = 0", "mine: space.unit_bytes: is 0"),
        (
            "usable_bytes = 549_523_456",
            "usable_bytes = 587_988_992",
            "mine: space.raw_bytes: 587988992 bytes must be more",
        ),
        (
            "usable_bytes = 549_523_456",
            "usable_bytes = 587_928_992",
            "mine: space.usable_bytes: 143537 pages leave no spare unit",
        ),
        ("raw_bytes = 587_988_992", "raw_bytes = 900_000_000_000_000", "mine: space.page_bytes: "),
        ("groups = 1", "groups = 0", "mine: space.groups: "),
        (
            "groups = 1",
            "groups = 257",
            "mine: space.groups: 257 reclaim groups are more than the maximum of 256",
        ),
        (
            "groups = 1",
            "groups = 65535",
            "mine: space.groups: 65535 reclaim groups are more than the maximum of 256",
        ),
        ("groups = 1", "groups = 3", "mine: space.raw_bytes: 2243 units cannot be divided evenly among 3"),
        ("groups = 1", "groups = 1\nreserve_units = 3", "mine: space.reserve_units: 3 units are too few"),
        ("handles = 8", "handles = 0", "mine: placement.handles: "),
        (
            "handles = 8",
            "handles = 200",
            "mine: placement.handles: 200 handles are more than the maximum of 128",
        ),
        ("dies = 4", "dies = 3", "mine: nand.dies: 3 dies cannot be divided evenly among 2 channels"),
        (
            "block_bytes = 65_536",
            "block_bytes = 1000",
            "mine: nand.block_bytes: 1000 bytes is not a multiple of the 16384-byte page",
        ),
        (
            "program_ns = 400_000",
            "program_ns = 9_000_000_000_000_000_000",
            "mine: nand.program_ns: 9000000000000000000 ns is above the maximum of 10000000000",
        ),
        ("dies = 4", "dies = 4_294_967_294", "mine: nand.dies: 4294967294 is above the maximum of 65536"),
        ("planes = 1", "planes = 4_294_967_295", "mine: nand.planes: 4294967295 is above the maximum of 64"),
        (
            "pages_at_once = 1",
            "pages_at_once = 65",
            "mine: nand.pages_at_once: 65 is above the maximum of 64",
        ),
        (
            "page_bytes = 16384",
            "page_bytes = 2_147_483_648",
            "mine: nand.page_bytes: 2147483648 is not a power of two from 4096 to 65536",
        ),
        (
            "block_bytes = 65_536",
            "block_bytes = 9_000_000_000_000_000_000",
            "mine: nand.block_bytes: 9000000000000000000 bytes is above the maximum of 1099511627776",
        ),
        (
            "channel_bytes_per_second = 1_000_000_000",
            "channel_bytes_per_second = 1",
            "mine: nand.channel_bytes_per_second: 1 bytes/s is below the minimum of 1000000",
        ),
        ("command_ns = 8_000", "command_ns = 80_000_000_000", "mine: controller.command_ns: "),
        ("dwpd = 1.0", "dwpd = -1.0", "mine: endurance.dwpd: -1 is not a finite number above 0"),
        ("groups = 1", "group = 1", "mine: line 16: unknown field `group`"),
        ("groups = 1", "groups = \"one\"", "mine: line 16: invalid type"),
        ("groups = 1", "groups = ", "mine: line 16: "),
    ];
    for (from, to, expected) in cases {
        let error = refusal(from, to);
        assert!(error.starts_with(expected), "{to}: {error}");
    }
}

#[test]
fn limit_named_in_a_refusal_is_accepted() {
    for (from, to) in [
        ("dies = 4", "dies = 65_536"),
        ("planes = 1", "planes = 64"),
        ("pages_at_once = 1", "pages_at_once = 64"),
        ("page_bytes = 16384", "page_bytes = 65_536"),
        ("program_ns = 400_000", "program_ns = 10_000_000_000"),
        ("channel_bytes_per_second = 1_000_000_000", "channel_bytes_per_second = 1_000_000"),
    ] {
        changed(from, to).unwrap_or_else(|error| panic!("{to}: {error}"));
    }
}

#[test]
fn load_unknown_name_lists_known_cards_and_missing_file_is_reported() {
    let names: Vec<String> = Card::built_in().into_iter().map(|card| card.name).collect();
    assert!(names.len() >= 12, "{names:?}");
    assert_eq!(
        Card::load("pm9d4").unwrap_err().to_string(),
        format!(
            "pm9d4: no such card; did you mean `pm9d3`? valid cards are {}, or the path of a TOML file",
            names.join(", ")
        )
    );
    assert!(Card::load("nowhere/card.toml").unwrap_err().to_string().contains("No such file"));
}

#[test]
fn computed_model_memory_equals_allocated_memory() {
    let layout = Card::load("test").unwrap().shape(true).layout().unwrap();
    let expected = layout.mapping_bytes();
    assert_eq!(Ftl::new(layout, Upkeep::default()).memory_bytes(), expected);
}
