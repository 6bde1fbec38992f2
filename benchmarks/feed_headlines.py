"""Eighty headlines for the feed's clusters: twelve stories in five wordings each, and twenty others.

The wordings of a story are those of different newsrooms: they share some of the names and few of the verbs.
Some of the others are near a story on purpose: another eclipse, another bank, another football club.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

STORIES: dict[str, tuple[str, str, str, str, str]] = {
    "eclipse": (
        "Total solar eclipse darkens northern Spain for almost two minutes",
        "Crowds in Spain watch the moon cover the sun in a total eclipse",
        "Day turned to night: millions see the solar eclipse over Spain",
        "Spanish hotels were full as the total solar eclipse crossed the north coast",
        "A solar eclipse seen from Spain delights astronomers with a clear view of the corona",
    ),
    "rocket": (
        "Ariane 6 rocket lifts a weather satellite into orbit from Kourou",
        "Europe's Ariane 6 launches new weather satellite from French Guiana",
        "Weather satellite reaches orbit after a flawless Ariane 6 launch",
        "Ariane 6 puts Europe's newest weather satellite in space",
        "From Kourou to orbit: an Ariane rocket carries the weather satellite aloft",
    ),
    "bank": (
        "European Central Bank cuts its key interest rate by a quarter point",
        "ECB lowers interest rates for the third time this year",
        "Interest rates in the euro zone fall as the Central Bank acts on weak growth",
        "Central Bank in Frankfurt cuts euro interest rate to two percent",
        "Borrowers gain as the ECB reduces its interest rate again",
    ),
    "quake": (
        "Magnitude 7.1 earthquake off Japan triggers a tsunami warning",
        "Strong earthquake shakes northern Japan; tsunami warning issued",
        "Japan lifts its tsunami warning hours after a powerful earthquake",
        "Residents of Japan's coast flee to higher ground after earthquake and tsunami alert",
        "Trains halted across northern Japan as an earthquake of magnitude 7.1 strikes offshore",
    ),
    "tennis": (
        "Alcaraz beats Sinner in five sets to win Wimbledon",
        "Wimbledon final: Alcaraz takes the title after a five-set battle with Sinner",
        "Sinner falls to Alcaraz in a thrilling Wimbledon final",
        "Carlos Alcaraz is Wimbledon champion again after outlasting Jannik Sinner",
        "Alcaraz saves three match points against Sinner and lifts the Wimbledon trophy",
    ),
    "strike": (
        "Rail strike in Germany stops long-distance trains for three days",
        "German train drivers begin a three-day rail strike over pay",
        "Commuters stranded as a rail strike paralyses Germany",
        "Deutsche Bahn cancels most trains because of the drivers' rail strike",
        "Rail strike: Germany's train drivers reject the latest pay offer of Deutsche Bahn",
    ),
    "vaccine": (
        "New malaria vaccine cuts infections in children by half, trial shows",
        "Malaria vaccine halves cases among young children in a large African trial",
        "Trial of a malaria vaccine in Ghana shows strong protection for children",
        "Health agency recommends the new malaria vaccine after a successful trial",
        "Children in four African countries are protected by malaria vaccine, study finds",
    ),
    "merger": (
        "Regulators block the merger of Northgate Energy and Baltic Power",
        "Northgate Energy abandons Baltic Power merger after regulators say no",
        "Merger of Baltic Power with Northgate Energy is stopped on competition grounds",
        "Shares of Northgate Energy drop as its merger with Baltic Power collapses",
        "Competition authority forbids Northgate and Baltic Power to merge",
    ),
    "fire": (
        "Wildfire near Athens forces thousands to leave their homes",
        "Thousands evacuated as wildfire approaches suburbs of Athens",
        "Greek firefighters battle a wildfire on the edge of Athens",
        "Athens wildfire: strong winds drive the flames towards villages",
        "Homes destroyed in the wildfire north of Athens, Greece asks for help",
    ),
    "museum": (
        "Thieves steal a Vermeer painting from the Rijksmuseum in Amsterdam",
        "Vermeer painting stolen from Rijksmuseum in an overnight raid",
        "Amsterdam police hunt the thieves who took a Vermeer from the Rijksmuseum",
        "Rijksmuseum closes after the theft of a painting by Vermeer",
        "Stolen Vermeer: how the thieves entered the Rijksmuseum through its roof",
    ),
    "whale": (
        "Stranded humpback whale freed from a beach in Cornwall",
        "Rescuers return a stranded humpback whale to the sea off Cornwall",
        "Cornwall volunteers work all night to save humpback whale on the beach",
        "Humpback whale that stranded in Cornwall swims away at high tide",
        "High tide saves the humpback whale stranded on a Cornish beach in Cornwall",
    ),
    "chip": (
        "Taiwan chip maker to build a semiconductor factory in Dresden",
        "Dresden wins a semiconductor plant of Taiwan's largest chip maker",
        "Taiwanese semiconductor maker breaks ground for its chip factory in Dresden",
        "Billions for Dresden: Taiwan chip company begins semiconductor factory",
        "Germany subsidises the semiconductor factory that a Taiwan chip maker builds in Dresden",
    ),
}
OTHERS = (
    "Partial lunar eclipse will be visible from Australia in March",
    "Bank of Japan leaves its policy unchanged and warns about the yen",
    "Football club sacks its coach after five defeats in a row",
    "Coffee harvest in Brazil is expected to be the smallest in a decade",
    "Opera house in Sydney celebrates fifty years with a free concert",
    "Scientists find a new species of frog in the forests of Ecuador",
    "City of Vienna is named the most liveable in the world once more",
    "Film about a lighthouse keeper wins the Golden Bear in Berlin",
    "Electric cars outsell diesel for the first time in Norway's mountains",
    "Parliament of Kenya debates a tax on mobile payments",
    "Oldest known map of the stars is discovered in a monastery library",
    "Heavy snow closes mountain passes in the Swiss Alps",
    "A chess prodigy of twelve becomes the youngest grandmaster",
    "Bees make a comeback in the parks of Paris",
    "Cyclist crosses Africa from Cairo to Cape Town in forty days",
    "Supermarkets in Canada recall lettuce after a salmonella outbreak",
    "University of Oslo abolishes written exams for first-year students",
    "New bridge over the Danube opens to traffic in Romania",
    "Novel by an unknown author tops the bestseller lists in Italy",
    "Archaeologists uncover a Roman bath under a car park in Bath",
)


def headlines() -> list[tuple[str, str]]:
    """Every headline with its label, in an order that mixes the stories; what stands alone labels itself."""
    mixed = [(story, words[wording]) for wording in range(5) for story, words in STORIES.items()]
    return [*mixed, *((f"other {number}", text) for number, text in enumerate(OTHERS))]


def purity(clusters: Sequence[Sequence[int]], labels: Sequence[str]) -> float:
    """The share of clustered headlines whose cluster is mostly about their own story."""
    sizes = [max(Counter(labels[index] for index in cluster).values()) for cluster in clusters]
    return sum(sizes) / sum(map(len, clusters)) if sizes else 0.0


def adjusted_rand_index(clusters: Sequence[Sequence[int]], labels: Sequence[str]) -> float:
    """Agreement with the stories, corrected for chance; what was left out counts as a cluster of its own."""
    from sklearn.metrics import adjusted_rand_score

    found = list(range(-1, -1 - len(labels), -1))
    for number, cluster in enumerate(clusters):
        for index in cluster:
            found[index] = number
    return float(adjusted_rand_score(labels, found))
