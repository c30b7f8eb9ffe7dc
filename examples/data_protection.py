"""Print the table of a data-protection record for each metric of a definitions file."""

import sys

from hubbub import Policy, load_definitions
from hubbub.privacy import privacy_figures

for metric in load_definitions(sys.argv[1]).values():
    figures = privacy_figures(metric, Policy())
    print(f"| {metric.name} | |\n|---|---|")
    print(f"| question | {metric.description} |")
    print(f"| purpose | {metric.purpose or '[fill in: purpose]'} |")
    print(f"| contact | {metric.owner} |")
    print(f"| approved in | {metric.review or '[fill in: review]'} |")
    print(f"| collected | one report per {metric.period}, until {metric.expires} |")
    print(f"| epsilon of a report | {figures.epsilon_report:.3f} |")
    print(f"| epsilon of all reports of a {figures.unit} | {figures.epsilon_unit:.3f} |")
    print(f"| epsilon, lifetime | {figures.epsilon_lifetime:.3f} |\n")
