use super::*;
use crate::report::tests::saved;

#[test]
fn every_main_figure_and_its_ratios_are_drawn() {
    let pictures = pictures(&saved());
    let names = pictures
        .iter()
        .map(|picture| picture.name.as_str())
        .collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "ping-pong",
            "ping-pong-ratio",
            "bulk",
            "bulk-ratio",
            "connect",
            "connect-ratio"
        ]
    );
    for Picture { name, svg } in &pictures {
        let tree = usvg::Tree::from_str(svg, &usvg::Options::default()).unwrap();
        assert_eq!((tree.size().width(), tree.size().height()), (1280.0, 720.0));
        assert!(svg.contains("toehold"), "{name}: the legend");
        assert!(svg.matches("<circle").count() >= 2, "{name}: points");
    }
}

#[test]
fn names_with_markup_are_text_in_picture() {
    let mut run = saved();
    run.report.header.plan.candidates[0] = "<script>".into();
    let mut panels = panels(&run.report, &run.samples);
    panels[0].figures[0].series[0].name = "</text><script>alert(1)</script>".into();
    let svg = svg(&panels[0].figures[0], false);
    assert!(!svg.contains("<script"), "{svg}");
}

#[test]
fn png_has_twice_the_pixels_of_svg() {
    if fonts().is_none() {
        let picture = &pictures(&saved())[0];
        assert!(matches!(picture.png(), Err(PictureError::NoFont)));
        return;
    }
    let png = pictures(&saved())[0].png().unwrap();
    let pixels = Pixmap::decode_png(&png).unwrap();
    assert_eq!((pixels.width(), pixels.height()), (2560, 1440));
    let dark = pixels.pixels().iter().filter(|pixel| pixel.red() < 100).count();
    assert!(dark > 1000, "letters and lines: {dark} dark pixels");
}
