"""Load on a league: thousands of users as locust plays them, and a report with figures and advice.

python -m ephemera_services.league.load worst --users 5000 --seconds 60
"""
