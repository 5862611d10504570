use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::world_cup::tests::record;
use super::*;

fn lengths(asked: &Asked) -> Vec<u64> {
    asked.files.iter().map(|file| file.length).collect()
}

/// Mean bytes of a request's answer.
fn mean_answer(asked: &Asked) -> f64 {
    let answers = asked
        .requests
        .iter()
        .map(|&file| asked.files[file as usize].length);
    answers.sum::<u64>() as f64 / asked.requests.len() as f64
}

fn of_log(bytes: &[u8]) -> io::Result<Asked> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, bytes).unwrap();
    Asked::world_cup(&path)
}

#[test]
fn log_yields_files_by_popularity_and_requests_in_order() {
    let log = [(9, 100), (5, 70), (9, 40), (8, 30), (5, 70), (9, 100)];
    let log = log.map(|(object, size)| record(object, size));
    let asked = of_log(log.as_flattened()).unwrap();
    assert_eq!(
        lengths(&asked),
        [100, 70, 30],
        "and the largest answer is the file"
    );
    assert_eq!(asked.requests, [0, 1, 0, 2, 1, 0]);

    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(log.as_flattened()).unwrap();
    let compressed = compressed.finish().unwrap();
    assert_eq!(of_log(&compressed).unwrap(), asked);
    assert!(of_log(&compressed[..compressed.len() / 2]).is_err(), "cut off");
}

#[test]
fn log_without_files_is_an_error() {
    for (log, said) in [
        (Vec::new(), "no answer with a file"),
        (record(1, 0).to_vec(), "no answer with a file"),
        (record(1, 1)[..19].to_vec(), "the record at byte 0 has 19 bytes"),
    ] {
        assert!(of_log(&log).unwrap_err().to_string().contains(said), "{said}");
    }
}

#[test]
fn served_files_are_bounded() {
    let many: Vec<_> = (0..2000_u32).map(|object| Answer { object, size: 1 }).collect();
    let asked = Asked::answered(&many).unwrap();
    assert_eq!(
        (asked.files.len(), asked.requests.len()),
        (MOST_FILES, MOST_FILES)
    );

    let large: Vec<_> = (0..100)
        .map(|object| Answer {
            object,
            size: 16 << 20,
        })
        .collect();
    let asked = Asked::answered(&large).unwrap();
    assert_eq!(lengths(&asked).iter().sum::<u64>(), MOST_BYTES);

    let often = vec![Answer { object: 1, size: 1 }; REQUESTS + 1];
    assert_eq!(Asked::answered(&often).unwrap().requests.len(), REQUESTS);
}

#[test]
fn synthetic_trace_matches_published_figures() {
    let asked = Asked::synthetic();
    let near = |ours: f64, published: f64| (ours / published - 1.0).abs() < 0.1;
    let sizes = lengths(&asked);
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    assert!(near(mean, 307e6 / 20_728.0), "files of {mean} bytes");
    let answer = mean_answer(&asked);
    assert!(
        near(answer, 4991e9 / 1_352_804_107.0),
        "answers of {answer} bytes"
    );
    assert!(sizes.iter().all(|&size| size > 0));
    assert_eq!(asked, Asked::synthetic());
}

#[test]
fn files_shrink_as_alpha_approaches_one() {
    let means = [0.25, 0.5, 0.75, 1.0].map(|alpha| mean_answer(&Asked::synthetic().by_zipf(alpha)));
    assert!(means.is_sorted_by(|one, next| one > next), "{means:?}");
}
