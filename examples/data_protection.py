"""Print the table of a data-protection record for each metric of a definitions file."""

import sys

from hubbub import Policy, load_definitions
from hubbub.privacy import privacy_figures
from hubbub.privacy.pricing import shown_epsilon

for metric in load_definitions(sys.argv[1]).values():
    figures = privacy_figures(metric, Policy())
    print(f"| {metric.name} | |\n|---|---|")
    print(f"| question | {metric.description} |")
    print(f"| purpose | {metric.purpose or '[fill in: purpose]'} |")
    print(f"| contact | {metric.owner} |")
    print(f"| approved in | {metric.review or '[fill in: review]'} |")
    print(f"| collected | one report per {metric.period}, until {metric.expires} |")
    print(f"| epsilon of a report | {shown_epsilon(figures.epsilon_report)} |")
    print(f"| epsilon of all reports of a {figures.unit} | {shown_epsilon(figures.epsilon_unit)} |")
    print(f"| epsilon, lifetime | {shown_epsilon(figures.epsilon_lifetime)} |\n")
