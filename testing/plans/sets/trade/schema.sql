-- Trade between vendors and clients of many countries.
create table area (area_id int not null primary key, name char(25) not null, notes varchar(152));
create table country (
  country_id int not null primary key, name char(25) not null, area_id int not null,
  notes varchar(152), key (area_id));
create table vendor (
  vendor_id int not null primary key, name char(25) not null, street varchar(40) not null,
  country_id int not null, phone char(15) not null, balance decimal(15,2) not null,
  notes varchar(101) not null, key (country_id));
create table product (
  product_id int not null primary key, name varchar(55) not null, maker char(25) not null,
  brand char(10) not null, kind varchar(25) not null, size int not null, wrapping char(10) not null,
  price decimal(15,2) not null, notes varchar(23) not null);
create table offer (
  product_id int not null, vendor_id int not null, available int not null,
  cost decimal(15,2) not null, notes varchar(199) not null,
  primary key (product_id, vendor_id), key (vendor_id));
create table client (
  client_id int not null primary key, name varchar(25) not null, street varchar(40) not null,
  country_id int not null, phone char(15) not null, balance decimal(15,2) not null,
  branch char(10) not null, notes varchar(117) not null, key (country_id));
create table purchase (
  purchase_id int not null primary key, client_id int not null, state char(1) not null,
  total decimal(15,2) not null, made_on date not null, urgency char(15) not null,
  clerk char(15) not null, ship_urgency int not null, notes varchar(79) not null,
  key (client_id), key (made_on));
create table item (
  purchase_id int not null, line int not null, product_id int not null, vendor_id int not null,
  quantity decimal(15,2) not null, price decimal(15,2) not null, discount decimal(15,2) not null,
  tax decimal(15,2) not null, is_returned char(1) not null, state char(1) not null,
  shipped_on date not null, promised_on date not null, received_on date not null,
  instructions char(25) not null, ship_mode char(10) not null, notes varchar(44) not null,
  primary key (purchase_id, line), key (shipped_on), key (product_id, vendor_id),
  key (vendor_id), key (promised_on), key (received_on));
