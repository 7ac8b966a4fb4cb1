# SPDX-License-Identifier: MIT
"""English prose of three lengths (15, 89 and 182 SmolLM2 tokens), for comparing logits and text."""

PROMPTS = [
    "The lighthouse keeper wound the clock every evening before the sun had fully set.",
    "When the ferry finally reached the far side of the fjord, the passengers crowded the rail to "
    "see the village. Twelve red houses stood along the quay, and behind them the mountain rose so "
    "steeply that goats grazed above the chimneys. Nobody spoke for a while. Then an old woman "
    "laughed, pointed at the smallest house, and said that she had been born there, in the "
    "kitchen, during the worst storm of the century.",
    "To bake a simple loaf of bread you need flour, water, salt and a little yeast. Mix five "
    "hundred grams of flour with three hundred and fifty grams of warm water, then let the dough "
    "rest for twenty minutes so that the flour can take up the water. Add ten grams of salt and "
    "five grams of yeast, fold the dough a few times, and cover the bowl with a damp cloth. After "
    "an hour the dough should have doubled in size. Shape it gently, without pressing out all the "
    "air, and leave it on a floured board while the oven heats up. A hot oven matters more than an "
    "exact recipe: bake at two hundred and thirty degrees for half an hour, and put a cup of water "
    "on the oven floor so that the steam keeps the crust soft while the bread grows. The loaf is "
    "ready when it sounds hollow as you knock on its underside. Let it cool before cutting.",
]
