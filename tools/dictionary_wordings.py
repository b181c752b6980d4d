"""The wordings that `make_dictionary` fills in: English chat, tools, their results, code.

A *blank* is a name in braces, drawn by `Writer.word`. A *field* is `name:kind`: a blank's name, or
`[kind` for a list and `{kind` for an object of that kind. All wordings are our own; none is taken
from a recorded conversation.

Changing a word here changes the next dictionary, never the shipped one. No code belongs here.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = (
    "Ada Ben Carla Dmitri Elena Farid Grace Hugo Ines Jonas Kira Leon Mara Nils Olga Priya Quinn "
    "Rosa Samir Tess Uma Victor Wendy Yusuf Zoe James Maria David Anna John Sarah Daniel Laura"
).split()
LAST: Final = (
    "Adler Brooks Castillo Dube Eriksen Fischer Greene Hoang Ito Jensen Kowalski Laurent Marino "
    "Novak Okafor Petrov Quist Reyes Schmidt Tanaka Usman Vance Smith Johnson Brown Davis"
).split()
CITY: Final = (
    "London|Paris|Berlin|New York|Chicago|Boston|Seattle|San Francisco|Los Angeles|Denver|Dallas|"
    "Houston|Austin|Miami|Atlanta|Phoenix|Philadelphia|Toronto|Madrid|Rome|Vienna|Oslo|Tokyo|Sydney"
).split("|")
CODE: Final = (
    "JFK LHR CDG BOS ORD SEA SFO LAX DEN DFW IAH AUS MIA ATL PHX PHL YYZ MAD FCO VIE".split()
)
STREET: Final = "Main Oak Maple Park Cedar Lake Hill River Church Station Garden Mill".split()
ROAD: Final = "Street Avenue Road Lane Drive Court".split()
MONTH: Final = (
    "January February March April May June July August September October November December".split()
)
ITEM: Final = (
    "wireless headphones|a desk lamp|running shoes|a water bottle|a laptop stand|a coffee maker|"
    "a winter jacket|an office chair|a mechanical keyboard|a backpack|a phone case|a board game"
).split("|")
FILE: Final = (
    "src/main.py|tests/test_api.py|app/models.py|README.md|config/settings.yaml|lib/client.ts|"
    "/notes/plan.md|/report/summary.md|scripts/build.sh|data/sales.csv|package.json|pyproject.toml"
).split("|")
TOPIC: Final = (
    "the quarterly report|the failing test|the monthly sales by region|the churn|my account|"
    "the refund|the database migration|the latest order|the error in the log|the research question"
).split("|")
REASON: Final = (
    "a change of plans|a family emergency|bad weather|a scheduling conflict|the wrong size|"
    "a damaged package|a missing parameter|an expired token|a timeout|an invalid value"
).split("|")

OPENINGS: Final = """Hi there! |Hello! |Hi, |Hello, |Good morning. |Thanks. |Thank you. |
Yes, please. |No, that's all. |Okay, |Sure, |Great, |Actually, |I see. |Sorry, |Alright, |Perfect. |
Got it. |Well, |I understand, but |Oh, |One more thing: ||||""".replace("\n", "").split("|")

USER: Final = """Can you help me with {topic}?
I would like to change my reservation from {city} to {city} on {date}.
I need to cancel my order because of {reason}.
I'd like to book a flight from {city} to {city} for {n} passengers, in economy class.
My user ID is {handle} and my reservation number is {ref}.
My order number is #{num}, and it was supposed to arrive on {date}.
Could you please check whether there is anything cheaper than {money}?
What is the total cost, and can I pay with my credit card ending in {d4}?
I want to use the gift card first and then the card on file for the remaining balance.
Please go ahead and make the change. I confirm that the details are correct.
I don't want travel insurance, and I don't have any checked bags.
That works for me. Which payment method will be used?
I don't remember the number, but my email address is {email} and my name is {name}.
Is it possible to get a refund instead, or at least a voucher for the inconvenience?
I would prefer a nonstop flight that leaves before noon, but one stop is fine if it's cheaper.
Please update the address to {address}.
Please write a function that reads {file} and returns the average of each column.
The test in {file} fails with a KeyError, and I'm not sure why. Can you take a look?
Can you explain what this error means and how to fix it?
Show me the results as a table, sorted by date, and only for the last {n} months.
How many customers did we have in {month}, and how does that compare with the same month last year?
Could you summarize what we have discussed so far?
I was told that I would be able to get this done today, so please double-check.
I'm not happy with that. Is there really no other option available?
If that is not possible, then I'd rather keep everything as it is.
Thank you so much for your help! That will be all for today.
Let me think about it. How much would it cost to upgrade to business class?
It's just me traveling, and I'll have {n} bags with me. Are there seats available on this one?
What about the return trip? It should be on {date}, any time after {hour}:00.
I would like to know if you have {item} in stock, and when it could be delivered.""".split("\n")

ASSISTANT: Final = """I'd be happy to help you with {topic}.
I can help you with that.
To assist you with your request, could you please provide your user ID?
To proceed, I need the following information from you:
Could you please confirm that you would like to proceed with these changes (yes/no)?
Please let me know if you would like to proceed, or if you have any other questions.
Thank you for providing the details, {first}. Let me check what is available.
Thank you for your patience, {first}. I have found the following options for your trip:
I'm sorry, but I'm not able to make that change, because the order has already been shipped.
I apologize for the inconvenience this may have caused.
I understand your frustration, and I'm sorry for the trouble.
Unfortunately, there are no direct flights from {city} to {city} on {date}.
Unfortunately, this reservation cannot be modified or cancelled, as it does not meet the conditions.
Your reservation {ref} has been successfully updated, and you will receive a confirmation by email.
Your order #{num} has been cancelled, and the refund of {money} will be issued to your original
 payment method within 5 to 7 business days.
The total cost for {n} passengers will be {money}, including the baggage fees.
The difference in price is {money}, which will be charged to your credit card ending in {d4}.
Here are the details of your reservation:
Here is a summary of the changes:
Here's what I found in {file}:
Based on the information you have provided, the best option would be the following:
It looks like the problem is caused by {reason}.
It seems that the function returns None when the list is empty, so the next call raises a TypeError.
I have updated {file} and run the tests again: {n} passed, 0 failed.
Let me look at the file first, and then run the tests.
The results show that revenue increased by {n}% compared with the previous month.
You can use the following code to read the file and compute the average for each group:
The highest value was in {city}, with a total of {money}, followed by {city}.
Would you like me to search for flights on another date, or with one stop?
Would you like to use the payment method on file, or would you prefer a different one?
Please note that basic economy tickets cannot be changed after booking.
If you have any further questions or need assistance with anything else, feel free to ask!
You're welcome! If you need any further assistance, please don't hesitate to reach out.
Have a great day!
Is there anything else I can help you with today?
I will now transfer you to a human agent, who will be able to assist you further.
Since you are a gold member, you are entitled to {n} free checked bags for each passenger.
According to our policy, a full refund is only available within 24 hours of the booking.
I will need to verify your identity before I can make any changes to your account.
The item you asked about, {item}, is currently in stock and available for {money}.
Currently, your profile shows the following payment methods: a credit card and a gift card.
However, there are several other options available at a higher price.
This means that you will not be charged for the change, and the original price remains the same.
Additionally, I can offer you a certificate of {money} as compensation for the delayed flight.
Before I proceed with the booking, I need to confirm a few details with you:
Once I have this information, I will be able to complete your request.""".replace("\n ", " ").split(
    "\n"
)

BULLETS: Final = """**Flight Number**: {flight}
**Departure**: {city} ({code}) at {hour}:{min} AM
**Arrival**: {city} ({code}) at {hour}:{min} PM
**From**: {city} to {city}
**Date**: {date}
**Price**: {money} per passenger
**Total Cost**: {money}
**Payment Method**: Credit card ending in {d4}
**Passenger**: {name} (Date of birth: {iso})
**Cabin Class**: Economy
**Cabin**: Business class, {n} seats available
**Reservation ID**: {ref}
**Order Number**: #{num}
**Status**: Delivered on {date}
**Item**: {item}
**Quantity**: {n}
**Duration**: {n} hours {min} minutes
**Checked Bags**: {n} bags
**Travel Insurance**: No
**Email**: {email}
**Shipping Address**: {address}
Your first name, last name, and date of birth
The reason for the cancellation (for example, a change of plans)
The payment method you would like to use
The number of checked bags for each passenger
Whether you would like to add travel insurance
The origin and destination, and the date of your trip
Return flight: {flight} from {city} to {city}, departing at {hour}:{min}
Outbound flight: {flight}, {date}, {money}
Check that the environment variable is set before the server starts
Add a test for the empty list
Use a dictionary instead of a list, so that a lookup does not scan every row""".split("\n")

CODE_LINES: Final = """import json
import os
from typing import Any
import pandas as pd
def load(path: str) -> list[dict[str, Any]]:
    with open(path, "r", encoding="utf-8") as f:
        return json.load(f)
class Client:
    def __init__(self, base_url: str, timeout: float = 10.0) -> None:
        self.base_url = base_url
        self.timeout = timeout
    for row in rows:
        if row["status"] != "active":
            continue
        total += row["amount"]
    return total / len(rows) if rows else 0.0
df = pd.read_csv("{file}")
result = df.groupby("region")["revenue"].sum().sort_values(ascending=False)
print(result.head(10))
def test_returns_none_when_the_list_is_empty():
    assert load("{file}") == []
const response = await fetch(url, {{ method: "GET", headers }});
export default function App() {{
    raise ValueError("unexpected value")
if __name__ == "__main__":
    main()
SELECT region, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY region
Traceback (most recent call last):
  File "{file}", line {n}, in <module>
KeyError: 'id'""".split("\n")

SYSTEM: Final = """You are a helpful assistant.
You are an agent that helps users with their orders and reservations.
Use the tools available to you to answer the user's question.
The current time is {iso} {hour}:{min}:00.
Before taking any action that updates the database, list the details and ask for confirmation.
You should not provide any information that is not provided by the user or by the tools.
Make only one tool call at a time, and do not respond to the user at the same time.
If the request cannot be handled with the tools, transfer the user to a human agent.
Write code that is simple, tested and documented. Answer in the language of the question.
Think step by step, and keep a list of what remains to be done.""".split("\n")

# Tool name, its arguments, and the kind of result it gives (a key of RESULTS).
TOOLS: Final = (
    ("search_flights", "origin:code destination:code date:iso passengers:n", "flights"),
    ("get_flight_status", "flight_number:flight date:iso", "flight"),
    ("get_reservation", "reservation_id:ref", "reservation"),
    ("get_user_profile", "user_id:handle", "user"),
    ("find_customer_by_email", "email:email", "user"),
    (
        "book_flight",
        "user_id:handle origin:code destination:code cabin:cabin date:iso",
        "reservation",
    ),
    ("update_reservation", "reservation_id:ref cabin:cabin payment_id:card", "reservation"),
    ("cancel_reservation", "reservation_id:ref reason:reason", "done"),
    ("get_order_details", "order_id:ref", "order"),
    ("search_products", "query:item max_price:n limit:n", "products"),
    ("create_return", "order_id:ref item_id:num reason:reason", "done"),
    ("calculate", "expression:sum", "number"),
    ("read_file", "path:file offset:n limit:n", "code"),
    ("write_file", "file_path:file content:line", "done"),
    ("edit_file", "file_path:file old_string:line new_string:line", "done"),
    ("run_command", "command:command timeout:n", "code"),
    ("run_sql", "query:sql", "rows"),
    ("web_search", "query:topic max_results:n", "pages"),
    ("get_weather", "city:city date:iso units:units", "weather"),
    ("transfer_to_agent", "summary:topic", "done"),
)

RESULTS: Final = {
    "flight": "flight_number:flight origin:code destination:code departure_time:clock "
    "arrival_time:clock date:iso status:flown price:n seats_available:n",
    "reservation": "reservation_id:ref user_id:handle origin:code destination:code "
    "trip_type:trip cabin:cabin flights:[flight passengers:[person payments:[payment "
    "created_at:stamp total_baggages:n insurance:no status:state",
    "user": "user_id:handle first_name:first last_name:last name:{person address:{place "
    "email:email phone:phone date_of_birth:iso payment_methods:[payment membership:level "
    "orders:[code reservations:[ref",
    "order": "order_id:ref user_id:handle status:state items:[product payment:{payment "
    "shipping_address:{place tracking_number:num total:money created_at:stamp",
    "product": "product_id:num item_id:num name:item description:topic price:n quantity:n "
    "available:yes options:{option",
    "payment": "payment_id:card type:paytype brand:brand last_four:d4 amount:n id:card",
    "person": "first_name:first last_name:last date_of_birth:iso",
    "place": "street:street city:city state:region country:land zip:zip",
    "option": "color:color size:size",
    "row": "region:city month:month revenue:n orders:n customers:n",
    "page": "title:topic url:url content:topic score:n",
    "weather": "city:city date:iso temperature:n humidity:n wind_speed:n description:sky",
    "done": "success:yes message:said id:num",
}
LISTS: Final = {"flights": "flight", "products": "product", "rows": "row", "pages": "page"}
CHOICES: Final = {
    "cabin": "economy|business|basic_economy|first",
    "flown": "available|delayed|landed|on time|cancelled",
    "trip": "one_way|round_trip",
    "no": "no|yes",
    "state": "confirmed|pending|delivered|processing|cancelled|active",
    "level": "regular|silver|gold",
    "paytype": "credit_card|gift_card|certificate|paypal",
    "brand": "visa|mastercard|amex",
    "region": "NY|CA|TX|WA|IL|MA|CO|FL|GA|AZ|PA|OH|NC|DC",
    "land": "USA|Canada|UK|Germany|France",
    "color": "black|white|blue|red|green",
    "size": "small|medium|large",
    "sky": "clear sky|light rain|overcast clouds|snow",
    "units": "metric|imperial",
    "command": "python -m pytest -q|git status|git diff|ls -la|npm test|grep -rn 'TODO' src",
    "sql": "SELECT * FROM orders WHERE status = 'pending' LIMIT 10|SELECT COUNT(*) FROM customers",
    "said": "The request was completed successfully.|Updated the file.|Error: not found|OK",
}
MODELS: Final = (("gpt-4o-2024-08-06", "openai"), ("claude-sonnet-4-5", "anthropic"))
NODES: Final = ("agent", "tools", "model", "call_model", "supervisor", "researcher", "chatbot")
