"""Chat questions out of patterns and words."""

from __future__ import annotations

import random

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a concise assistant. Answer in a few sentences.",
    "You are an experienced programmer who explains things patiently.",
    "You are a friendly teacher. Use simple words.",
    "Answer as precisely as you can.",
)

TOPICS = """
photosynthesis; the water cycle; black holes; the French Revolution; supply and demand; machine learning;
plate tectonics; vaccines; the Roman Empire; renewable energy; the human heart; how the internet works; electric cars;
inflation; the moon landing; recycling; the brain; DNA; volcanoes; earthquakes; a healthy breakfast; sleep;
meditation; public speaking; time management; learning a language; playing the guitar; chess; photography; gardening;
bread baking; coffee; tea; Italian cooking; vegetarian food; hiking; swimming; running; yoga; football; basketball;
tennis; cycling; travelling by train; a job interview; a cover letter; working from home; team meetings;
customer support; project planning; saving money; taxes; insurance; mortgages; climate change; rain forests;
coral reefs; deserts; glaciers; rivers; bees; whales; dogs; cats; elephants; birds of prey; dinosaurs; mushrooms;
trees; Shakespeare; poetry; modern art; jazz; classical music; film making; theatre; architecture; the Renaissance;
ancient Egypt; the Silk Road; the Vikings; democracy; human rights; the United Nations; elections; philosophy; ethics;
logic; probability; statistics; calculus; geometry; prime numbers; fractions; gravity; light; sound; magnets;
electricity; atoms; the periodic table; chemical reactions; energy; temperature; the solar system; Mars; comets;
stars; Python; lists and tuples; dictionaries; recursion; sorting algorithms; binary search; hash tables;
linked lists; graphs; regular expressions; databases; SQL; version control; unit tests; debugging; web servers; HTML;
CSS; JavaScript; JSON; APIs; operating systems; threads; memory; networks; encryption; passwords; cloud computing;
robots; 3D printing; smartphones; video games; social media; online shopping; newspapers; libraries; museums; schools
"""

ASKS = """
Can you explain {0} to a ten-year-old?; What is {0}, and why does it matter?; Tell me something surprising about {0}.;
What should a beginner know about {0}?; Write a short paragraph about {0}.;
How has {0} changed over the last century?; What are common mistakes people make with {0}?; Give me advice about {0}.;
Write a short story in which {0} plays a part.; Write a poem about {0}.; What is the difference between {0} and {1}?;
How are {0} and {1} related?; Compare {0} with {1}.; I have to give a talk about {0}. How should I begin?;
Write an email to a colleague about {0}.; Who should learn about {0}?; Describe {0} in three sentences.;
What questions should I ask an expert on {0}?; Explain step by step how to get started with {0}.;
My friend says that {0} is boring. What would you answer?; What do most people get wrong about {0}?;
Write a dialogue between two friends about {0}.; Why is {0} important?;
Is {0} more interesting than {1}? Argue both sides.; What is the history of {0}?; Help me plan a lesson about {0}.
"""

LISTS = """
List {2} facts about {0}.; Give me {2} tips for {0}.; What are the {2} most important things about {0}?;
Name {2} books or films about {0} and say why.; Write a checklist with {2} points about {0}.;
Give {2} reasons to care about {0}.; Make a numbered list of {2} steps to learn about {0}.;
Write {2} quiz questions about {0}, with answers.; List {2} advantages and {2} disadvantages of {0}.;
Make a table with {2} rows about {0} and {1}.; Give {2} example sentences that use words around {0}.;
Return a JSON list with {2} objects about {0}, each with name and description.
"""


def _split(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(";"))


_TOPICS, _ASKS, _LISTS = _split(TOPICS), _split(ASKS), _split(LISTS)


def question(draw: random.Random) -> str:
    """An open question or a small writing task."""
    return _filled(draw, draw.choice(_ASKS))


def list_request(draw: random.Random) -> str:
    """Something to be answered with a list, a table or JSON."""
    return _filled(draw, draw.choice(_LISTS))


def _filled(draw: random.Random, pattern: str) -> str:
    one, other = draw.sample(_TOPICS, 2)
    return pattern.format(one, other, draw.randint(3, 10))
