"""The colors of charts, drawings and pages, which Python, CSS and JavaScript share.

All but the last three are those of Okabe and Ito (2008), which color-blind readers can distinguish.
"""

COLORS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "gray": "#7F7F7F",
    "brown": "#8C564B",
    "olive": "#808000",
}
PALETTE = list(COLORS.values())[:7]  # of charts, in the order in which they take them
HEADS = [  # of attention heads, in order
    COLORS[name]
    for name in "blue orange green vermilion pink brown sky gray olive".split()  # noqa: SIM905
]
